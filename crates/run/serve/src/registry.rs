//! Registry of the served models, by name and version, and the repository from which they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kserve::{IndexEntry, VersionState};
use tokio::sync::Mutex;

use crate::error::{Error, LoadError, Result};
use crate::folder::{ModelVersion, RepositoryFolder};
use crate::model::InferModel;
use crate::observer::{ServerEvent, ServerObserver};
use crate::route::ModelTarget;
use crate::served_model::{RunLimits, ServedModel};

/// Function that loads a version of a model.
pub type LoadModel = dyn Fn(&ModelVersion) -> Result<Arc<dyn InferModel>, LoadError> + Send + Sync;

/// Models to serve: a fixed list, or a repository folder.
pub enum ModelSource {
    /// Models with their names, each served as version 1.
    Fixed(Vec<(String, Arc<dyn InferModel>)>),
    /// Every version of every model in a folder. Clients can load and unload them.
    Folder { folder: RepositoryFolder, load: Box<LoadModel> },
}

impl fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(models) => f.debug_list().entries(models.iter().map(|(name, _)| name)).finish(),
            Self::Folder { folder, .. } => folder.fmt(f),
        }
    }
}

/// Versions of the served models, by model name.
pub(crate) struct Registry {
    models: RwLock<BTreeMap<String, ModelEntry>>,
    source: Option<RepositorySource>,
    limits: RunLimits,
    observer: Arc<dyn ServerObserver>,
    /// Lock that serialises loading and unloading.
    changes: Mutex<()>,
}

struct RepositorySource {
    folder: RepositoryFolder,
    load: Box<LoadModel>,
}

#[derive(Debug, Default)]
struct ModelEntry {
    ready: BTreeMap<u64, Arc<ServedModel>>,
    /// Versions that do not answer, with the reason.
    unavailable: BTreeMap<u64, String>,
    is_loading: bool,
}

/// Reason for which a model was not loaded or unloaded.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// The server was started with a fixed list of models.
    NoRepository,
    /// The repository has no model of this name.
    NotInRepository,
    Failed(Error),
    Panicked,
}

impl Registry {
    /// Loads all models.
    ///
    /// # Errors
    /// Returns an error if a model cannot be loaded, or if two models have the same name.
    pub(crate) fn new(
        models: ModelSource,
        limits: RunLimits,
        observer: Arc<dyn ServerObserver>,
    ) -> Result<Self> {
        let mut registry =
            Self { models: RwLock::default(), source: None, limits, observer, changes: Mutex::default() };
        match models {
            ModelSource::Fixed(models) => {
                for (name, model) in models {
                    if name.is_empty() {
                        return Err(Error::NoName);
                    }
                    if registry.read().contains_key(&name) {
                        return Err(Error::SameName { name });
                    }
                    let served = ServedModel::start(name, 1, model, limits).map_err(Error::System)?;
                    registry.insert(vec![served]);
                }
            }
            ModelSource::Folder { folder, load } => {
                let found = registry.list(&folder)?;
                if found.is_empty() {
                    return Err(Error::EmptyRepository { folder });
                }
                let source = registry.source.insert(RepositorySource { folder, load });
                let started =
                    found.iter().map(|found| source.start(found, limits)).collect::<Result<Vec<_>>>()?;
                let mut by_name = BTreeMap::<String, Vec<Arc<ServedModel>>>::new();
                for served in started {
                    by_name.entry(served.name.clone()).or_default().push(served);
                }
                for versions in by_name.into_values() {
                    registry.insert(versions);
                }
            }
        }
        Ok(registry)
    }

    /// Returns true if the models come from a folder, so that clients can load and unload them.
    pub(crate) fn has_repository(&self) -> bool {
        self.source.is_some()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, ModelEntry>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, ModelEntry>> {
        self.models.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the model versions of the repository, and reports each ignored file to the observer.
    fn list(&self, folder: &RepositoryFolder) -> Result<Vec<ModelVersion>> {
        let listing = folder.list().map_err(|source| Error::List { path: folder.path.clone(), source })?;
        listing.ignored.iter().for_each(|path| self.observer.event(&ServerEvent::Ignored { path }));
        Ok(listing.model_versions)
    }

    /// Serves `versions` of one model in place of its current versions.
    fn insert(&self, versions: Vec<Arc<ServedModel>>) {
        let Some(name) = versions.first().map(|served| served.name.clone()) else { return };
        for served in &versions {
            self.observer.event(&ServerEvent::Loaded { name: &name, version: served.version });
        }
        let ready = versions.into_iter().map(|served| (served.version, served)).collect();
        self.write().insert(name, ModelEntry { ready, ..ModelEntry::default() });
    }

    /// Finds the model version that a path names; the newest version if it names none.
    pub(crate) fn find(&self, target: &ModelTarget) -> Result<Arc<ServedModel>, kserve::Error> {
        let models = self.read();
        let ready = models.get(&target.name).map(|entry| &entry.ready).filter(|ready| !ready.is_empty());
        let ready = ready.ok_or_else(|| kserve::Error::UnknownModel { model: target.name.clone() })?;
        let served = match &target.version {
            None => ready.last_key_value().map(|(_, served)| served),
            Some(version) => version.parse().ok().and_then(|version: u64| ready.get(&version)),
        };
        served.cloned().ok_or_else(|| kserve::Error::UnknownVersion {
            model: target.name.clone(),
            version: target.version.clone().unwrap_or_default(),
        })
    }

    /// Returns the versions of a model that are ready, oldest first.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        let models = self.read();
        models.get(name).map(|entry| entry.ready.keys().map(u64::to_string).collect()).unwrap_or_default()
    }

    pub(crate) fn ready_models(&self) -> Vec<Arc<ServedModel>> {
        self.read().values().flat_map(|entry| entry.ready.values().cloned()).collect()
    }

    /// Builds the repository index: models of the repository, and served models. This lists the folder, so it must not run
    /// on the reactor.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    pub(crate) fn index(&self, only_ready: bool) -> Result<Vec<IndexEntry>> {
        let mut listed = BTreeMap::<String, BTreeSet<u64>>::new();
        if let Some(source) = self.source.as_ref().filter(|_| !only_ready) {
            let path = &source.folder.path;
            let listing =
                source.folder.list().map_err(|error| Error::List { path: path.clone(), source: error })?;
            for found in listing.model_versions {
                listed.entry(found.name).or_default().insert(found.version);
            }
        }
        let models = self.read();
        let names: BTreeSet<&String> = listed.keys().chain(models.keys()).collect();
        let mut index = Vec::new();
        for name in names {
            let Some(entry) = models.get(name) else {
                index.push(IndexEntry { name: name.clone(), version: None, state: None, reason: None });
                continue;
            };
            let row = |version: u64, state: VersionState, reason: Option<&str>| IndexEntry {
                name: name.clone(),
                version: Some(version.to_string()),
                state: Some(state),
                reason: reason.map(str::to_owned),
            };
            let files = listed.get(name).into_iter().flatten().copied();
            let versions: BTreeSet<u64> =
                files.chain(entry.ready.keys().copied()).chain(entry.unavailable.keys().copied()).collect();
            for version in versions {
                if entry.ready.contains_key(&version) {
                    index.push(row(version, VersionState::Ready, None));
                } else if entry.is_loading && !only_ready {
                    index.push(row(version, VersionState::Loading, None));
                } else if !only_ready {
                    let reason = entry.unavailable.get(&version).map_or("not loaded", String::as_str);
                    index.push(row(version, VersionState::Unavailable, Some(reason)));
                }
            }
        }
        Ok(index)
    }

    /// Loads all versions of a model from the repository, in place of the current ones. Requests queued at the replaced
    /// versions are still answered. If a version cannot be loaded, the served versions stay.
    pub(crate) async fn load(self: Arc<Self>, name: String) -> Result<(), ChangeError> {
        let _changes = self.changes.lock().await;
        if self.source.is_none() {
            return Err(ChangeError::NoRepository);
        }
        let registry = self.clone();
        let loading = tokio::task::spawn_blocking(move || registry.load_blocking(&name));
        loading.await.unwrap_or(Err(ChangeError::Panicked))
    }

    fn load_blocking(&self, name: &str) -> Result<(), ChangeError> {
        let source = self.source.as_ref().ok_or(ChangeError::NoRepository)?;
        let mut found = self.list(&source.folder).map_err(ChangeError::Failed)?;
        found.retain(|found| found.name == name);
        if found.is_empty() {
            return Err(ChangeError::NotInRepository);
        }
        self.write().entry(name.to_owned()).or_default().is_loading = true;
        let loading = LoadingGuard { registry: self, name };
        let mut started = Vec::new();
        for found in &found {
            match source.start(found, self.limits) {
                Ok(served) => started.push(served),
                Err(error) => {
                    let mut models = self.write();
                    let entry = models.entry(name.to_owned()).or_default();
                    if !entry.ready.contains_key(&found.version) {
                        entry.unavailable.insert(found.version, error.to_string());
                    }
                    return Err(ChangeError::Failed(error));
                }
            }
        }
        drop(loading);
        self.insert(started);
        Ok(())
    }

    /// Stops serving a model. Its queued requests are still answered.
    pub(crate) async fn unload(self: Arc<Self>, name: String) -> Result<(), ChangeError> {
        let _changes = self.changes.lock().await;
        let Some(source) = &self.source else { return Err(ChangeError::NoRepository) };
        let folder = source.folder.clone();
        let unloaded = match self.write().get_mut(&name) {
            Some(entry) => {
                let ready = std::mem::take(&mut entry.ready);
                entry.unavailable.extend(ready.keys().map(|version| (*version, "unloaded".to_owned())));
                ready
            }
            None => BTreeMap::new(),
        };
        for version in unloaded.keys() {
            self.observer.event(&ServerEvent::Unloaded { name: &name, version: *version });
        }
        if !unloaded.is_empty() || self.read().contains_key(&name) {
            return Ok(());
        }
        let listing = tokio::task::spawn_blocking(move || folder.list()).await;
        match listing {
            Ok(Ok(listing)) if listing.model_versions.iter().any(|found| found.name == name) => Ok(()),
            _ => Err(ChangeError::NotInRepository),
        }
    }
}

impl RepositorySource {
    fn start(&self, found: &ModelVersion, limits: RunLimits) -> Result<Arc<ServedModel>> {
        let model = (self.load)(found).map_err(Error::Load)?;
        ServedModel::start(found.name.clone(), found.version, model, limits).map_err(Error::System)
    }
}

/// Guard that marks a model as loading until it is dropped.
struct LoadingGuard<'r> {
    registry: &'r Registry,
    name: &'r str,
}

impl Drop for LoadingGuard<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.registry.write().get_mut(self.name) {
            entry.is_loading = false;
        }
    }
}
