//! The runtime of the program's work, which keeps nobody waiting when the work is done.

use std::process::ExitCode;

use tokio::runtime::Builder;

use crate::exit::{Failure, INTERNAL};

/// Runs the work to its end, on this thread.
///
/// What the work has left behind is not waited for: a resolver that nobody answers may look for a host's name long after the
/// operation timeout, on a thread that cannot be stopped.
pub(crate) fn block_on(work: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let built = Builder::new_current_thread().enable_all().build();
    let runtime = built.map_err(|error| Failure::caused(INTERNAL, "cannot start the runtime", &error))?;
    let answer = runtime.block_on(work);
    runtime.shutdown_background();
    answer
}
