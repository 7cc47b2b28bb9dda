//! What the command line says, checked before anything is touched.

use std::{error::Error, ffi::OsString, time::Duration};

use lease_core::{LeaseDuration, LeaseName, MemoryLeaseStore, SingletonExecutor, SingletonOptions};

use crate::{
    args::RunArguments,
    exit::{Failure, USAGE, chain},
    store::StoreUrl,
};

/// A checked `lease run`.
#[derive(Debug)]
pub(crate) struct RunSettings {
    pub(crate) name: LeaseName,
    pub(crate) store: StoreUrl,
    /// How the lease is kept; the executor has accepted it.
    pub(crate) options: SingletonOptions,
    /// How long the command has between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Whether to wait for a lease that is held.
    pub(crate) wait: bool,
    pub(crate) command: Vec<OsString>,
}

impl TryFrom<RunArguments> for RunSettings {
    type Error = Failure;

    fn try_from(arguments: RunArguments) -> Result<Self, Failure> {
        let name = LeaseName::new(&arguments.name).map_err(refused)?;
        let duration = LeaseDuration::new(arguments.duration).map_err(refused)?.as_duration();
        // The executor's own default, said aloud because the watchdog has to know it too.
        let grace = arguments.grace.unwrap_or(duration / 6);
        let mut options = SingletonOptions::enabled().duration(duration).grace(grace);
        if let Some(label) = arguments.owner {
            options = options.label(label);
        }
        // An executor over no database, so that the options are judged before any file is created.
        SingletonExecutor::new(MemoryLeaseStore::new(), options.clone()).map_err(refused)?;
        let store = StoreUrl::parse(arguments.store.url.as_deref())?;
        Ok(Self { name, store, options, grace, wait: !arguments.no_wait, command: arguments.command })
    }
}

fn refused(error: impl Error) -> Failure {
    Failure::new(USAGE, chain(&error))
}
