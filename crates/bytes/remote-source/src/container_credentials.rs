//! Credentials of a container, from the service at `AWS_CONTAINER_CREDENTIALS_FULL_URI`.
//!
//! Facts: "Container credential provider" in the reference guide of the AWS SDKs. `object_store` has the case with a file that holds
//! the token for the service; here are the cases with a token in the environment, and without one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::aws::AwsCredential;
use object_store::client::CredentialProvider;
use object_store::{Error, Result};
use serde::Deserialize;

use crate::client::Client;

/// Time after which the service is asked again. Its credentials are valid for hours, and it answers from the same machine.
const KEPT: Duration = Duration::from_secs(300);
/// Longest answer in bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// Asks the service for credentials.
pub(crate) struct ContainerCredentials {
    pub(crate) client: Arc<Client>,
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) kept: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CredentialsDocument {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
}

impl fmt::Debug for ContainerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContainerCredentials")
    }
}

impl ContainerCredentials {
    fn ask(&self) -> Result<AwsCredential, String> {
        let mut request = self.client.metadata.get(&self.url);
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        self.client.options.counter.add_request();
        let mut answer = request.call().map_err(|reason| reason.to_string())?;
        if answer.status() != 200 {
            return Err(format!("it answers {}", answer.status().as_u16()));
        }
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let document: CredentialsDocument =
            serde_json::from_slice(&text.map_err(|reason| reason.to_string())?)
                .map_err(|_| "its answer has no credentials".to_owned())?;
        let CredentialsDocument { access_key_id: key_id, secret_access_key: secret_key, token } = document;
        Ok(AwsCredential { key_id, secret_key, token })
    }

    fn credential(&self) -> Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, credential)) = &*kept
            && since.elapsed() < KEPT
        {
            return Ok(Arc::clone(credential));
        }
        let credential = self.ask().map_err(|reason| Error::Generic {
            store: "S3",
            source: format!("AWS_CONTAINER_CREDENTIALS_FULL_URI: {reason}").into(),
        })?;
        let credential = Arc::new(credential);
        *kept = Some((Instant::now(), Arc::clone(&credential)));
        Ok(credential)
    }
}

impl CredentialProvider for ContainerCredentials {
    type Credential = AwsCredential;

    fn get_credential<'s, 'f>(
        &'s self,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<AwsCredential>>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move { self.credential() })
    }
}
