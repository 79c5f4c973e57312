//! Settings and credentials of object stores, from the environment.
//!
//! Facts: the environment variables that `object_store` reads, `~/.aws/config` and `~/.aws/credentials`, and
//! `STORAGE_EMULATOR_HOST` of Google's clients.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{CredentialProvider, StaticCredentialProvider};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{BackoffConfig, Error as StoreError, ObjectStore, Result, RetryConfig};
use url::{Host, Url};

use crate::aws_profile::AwsProfile;
use crate::client::Client;
use crate::connector::{AzureSigner, Condition, Connector};
use crate::container_credentials::ContainerCredentials;
use crate::{BucketAddress, BucketService};

/// Settings and credentials of a bucket, of which its stores are made.
#[derive(Clone)]
pub(crate) enum StoreBuilder {
    Amazon(AmazonS3Builder),
    Google(GoogleCloudStorageBuilder),
    Azure(MicrosoftAzureBuilder, AzureSigner),
}

impl StoreBuilder {
    /// Finds the settings and credentials of a bucket. Without credentials, a public bucket can be read.
    ///
    /// # Errors
    /// When the environment has credentials that are incomplete.
    pub(crate) fn from_env(bucket: &BucketAddress, client: &Arc<Client>) -> Result<Self> {
        let (client, service) = (Arc::clone(client), bucket.service);
        let connector = Connector { client, service, azure: None, condition: Arc::default() };
        match service {
            BucketService::Amazon => open_amazon(&bucket.bucket, &connector),
            BucketService::Google => open_google(&bucket.bucket, connector),
            BucketService::Azure => open_azure(&bucket.bucket, connector),
        }
    }

    /// Returns a store, whose requests that complete an upload have the condition once there is one.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub(crate) fn build(
        &self,
        client: &Arc<Client>,
        condition: Arc<OnceLock<Condition>>,
    ) -> Result<Arc<dyn ObjectStore>> {
        let (service, azure) = match self {
            Self::Amazon(_) => (BucketService::Amazon, None),
            Self::Google(_) => (BucketService::Google, None),
            Self::Azure(_, signer) => (BucketService::Azure, Some(signer.clone())),
        };
        let connector = Connector { client: Arc::clone(client), service, azure, condition };
        Ok(match self.clone() {
            Self::Amazon(builder) => Arc::new(builder.with_http_connector(connector).build()?),
            Self::Google(builder) => Arc::new(builder.with_http_connector(connector).build()?),
            Self::Azure(builder, _) => Arc::new(builder.with_http_connector(connector).build()?),
        })
    }
}

/// Account of the emulator, if the environment names no other.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn is_set(names: &[&str]) -> bool {
    names.iter().any(|name| variable(name).is_some())
}

/// Retries of the question whether an instance has credentials: most machines are none, and do not answer.
fn no_retries(timeout: Duration) -> RetryConfig {
    RetryConfig { max_retries: 0, ..retries(timeout) }
}

fn has_credential<C: Send + Sync>(provider: &dyn CredentialProvider<Credential = C>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.is_ok_and(|runtime| runtime.block_on(provider.get_credential()).is_ok())
}

fn open_amazon(bucket: &str, connector: &Connector) -> Result<StoreBuilder> {
    let timeout = connector.client.options.timeout;
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(connector.clone())
        .with_retry(retries(timeout));
    // The variable of one service comes before the one of all.
    if let Some(endpoint) = variable("AWS_ENDPOINT_URL_S3") {
        builder = builder.with_endpoint(endpoint);
    }
    let metadata = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").or_else(|| {
        let mode = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")?;
        mode.eq_ignore_ascii_case("ipv6").then(|| "http://[fd00:ec2::254]".to_owned())
    });
    if let Some(endpoint) = metadata {
        builder = builder.with_metadata_endpoint(endpoint.trim_end_matches('/'));
    }
    let is_given = is_set(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]) && !is_set(&["AWS_PROFILE"])
        || is_set(&["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"])
        || is_set(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"]);
    let profile = AwsProfile::read(&variable)
        .map_err(|reason| StoreError::Generic { store: "S3", source: reason.into() })?;
    let mut region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let mut is_known = is_given;
    if let Some(profile) = profile.filter(|_| !is_given) {
        region = region.or(profile.region);
        if let Some(endpoint) =
            profile.endpoint.filter(|_| !is_set(&["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]))
        {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some((key_id, secret_key)) = profile.keys {
            let credential = AwsCredential { key_id, secret_key, token: profile.token };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)));
            is_known = true;
        }
    }
    if let Some(url) = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").filter(|_| is_container()) {
        let token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let client = Arc::clone(&connector.client);
        let provider =
            ContainerCredentials { client, url: container_url(&url)?, token, kept: Mutex::default() };
        builder = builder.with_credentials(Arc::new(provider));
    }
    if !is_known {
        let is_disabled =
            variable("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let of_instance = || builder.clone().with_retry(no_retries(timeout)).build();
        let is_instance =
            !is_disabled && of_instance().is_ok_and(|store| has_credential(&**store.credentials()));
        if !is_instance {
            builder = builder.with_skip_signature(true);
        }
    }
    if region.is_none() && builder.get_config_value(&AmazonS3ConfigKey::Endpoint).is_none() {
        region = connector.region_of(bucket);
    }
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let credentials = Arc::clone(builder.clone().build()?.credentials());
    Ok(StoreBuilder::Amazon(builder.with_credentials(credentials)))
}

/// Returns true if a container's credentials are what the environment names, and `object_store` does not ask for them.
fn is_container() -> bool {
    let has_keys = is_set(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]) || is_set(&["AWS_PROFILE"]);
    !has_keys
        && !is_set(&["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"])
        && !is_set(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"])
}

/// Returns the URL of the service for containers if a token may be sent there: by https, or within the machine.
fn container_url(text: &str) -> Result<String> {
    let refused = |reason: &str| StoreError::Generic {
        store: "S3",
        source: format!("AWS_CONTAINER_CREDENTIALS_FULL_URI: {reason}").into(),
    };
    let url = Url::parse(text).map_err(|_| refused("it is not a URL"))?;
    let is_near = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        None => false,
    };
    if url.scheme() == "https" || url.scheme() == "http" && is_near {
        return Ok(text.to_owned());
    }
    Err(refused("it is not encrypted"))
}

fn open_google(bucket: &str, connector: Connector) -> Result<StoreBuilder> {
    let timeout = connector.client.options.timeout;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(connector)
        .with_retry(retries(timeout));
    if let Some(emulator) = variable("STORAGE_EMULATOR_HOST") {
        let url = if emulator.contains("://") { emulator } else { format!("http://{emulator}") };
        return Ok(StoreBuilder::Google(unsigned(builder.with_base_url(url.trim_end_matches('/')))));
    }
    let names = ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"];
    let is_known = is_set(&names)
        || is_set(&["GOOGLE_SERVICE_ACCOUNT_KEY", "SERVICE_ACCOUNT", "GOOGLE_SKIP_SIGNATURE"])
        || google_file().is_some_and(|path| path.is_file());
    if !is_known {
        let store = builder.clone().with_retry(no_retries(timeout)).build();
        if !store.is_ok_and(|store| has_credential(&**store.credentials())) {
            builder = unsigned(builder);
        }
    }
    let credentials = Arc::clone(builder.clone().build()?.credentials());
    Ok(StoreBuilder::Google(builder.with_credentials(credentials)))
}

/// Sends requests without a signature. Those that write would ask for a token nevertheless, so they get an empty one.
fn unsigned(builder: GoogleCloudStorageBuilder) -> GoogleCloudStorageBuilder {
    let none = StaticCredentialProvider::new(GcpCredential { bearer: String::new() });
    builder.with_skip_signature(true).with_credentials(Arc::new(none))
}

/// Returns the file in which `gcloud` keeps the default credentials.
fn google_file() -> Option<PathBuf> {
    let folder = if cfg!(windows) {
        PathBuf::from(variable("APPDATA")?).join("gcloud")
    } else {
        PathBuf::from(variable("HOME")?).join(".config/gcloud")
    };
    Some(folder.join("application_default_credentials.json"))
}

fn open_azure(container: &str, connector: Connector) -> Result<StoreBuilder> {
    let timeout = connector.client.options.timeout;
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_http_connector(connector)
        .with_retry(retries(timeout));
    let has = |key: AzureConfigKey| builder.get_config_value(&key).is_some();
    let is_known = [
        AzureConfigKey::AccessKey,
        AzureConfigKey::ClientSecret,
        AzureConfigKey::SasKey,
        AzureConfigKey::Token,
        AzureConfigKey::FederatedTokenFile,
    ]
    .into_iter()
    .any(has);
    let is_emulator = builder.get_config_value(&AzureConfigKey::UseEmulator).is_some_and(|it| it == "true");
    if !is_known && !is_emulator {
        let store = builder.clone().with_retry(no_retries(timeout)).build();
        if !store.is_ok_and(|store| has_credential(&**store.credentials())) {
            builder = builder.with_skip_signature(true);
        }
    }
    let account = builder.get_config_value(&AzureConfigKey::AccountName);
    let account = account.unwrap_or_else(|| EMULATOR_ACCOUNT.to_owned());
    let credentials = Arc::clone(builder.clone().build()?.credentials());
    Ok(StoreBuilder::Azure(builder.with_credentials(Arc::clone(&credentials)), (credentials, account)))
}

/// Returns how often and for how long the store tries again, like [`crate::retry`]. The service may ask for a pause of `timeout`.
fn retries(timeout: Duration) -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(200),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: 4, retry_timeout: timeout.saturating_add(Duration::from_secs(120)) }
}
