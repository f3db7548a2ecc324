//! Releases of dropped guards. They run in the background until the client is closed or dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{self, JoinSet};
use tokio::time::timeout;

/// How long the last client waits for pending releases when it is dropped.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The pending releases of a client.
#[derive(Default)]
pub(super) struct Releases(Mutex<JoinSet<()>>);

impl Releases {
    /// Runs a release in the background.
    pub(super) fn spawn(&self, release: impl Future<Output = ()> + Send + 'static, on: &Handle) {
        let mut releases = self.lock();
        while releases.try_join_next().is_some() {}
        releases.spawn_on(release, on);
    }

    /// Waits for all pending releases.
    pub(super) async fn join(&self) {
        let mut releases = std::mem::take(&mut *self.lock());
        while releases.join_next().await.is_some() {}
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        let releases = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        while releases.try_join_next().is_some() {}
        if !releases.is_empty()
            && let Some(runtime) = runtime_of_main()
        {
            wait_for(releases, &runtime);
        }
        // The remaining ones continue without the client while the runtime lives.
        releases.detach_all();
    }
}

/// Returns the runtime if this thread called `block_on` and other threads run the tasks. The program is then likely about
/// to end together with the runtime. Within a task there is no need to wait, because the runtime lives on.
fn runtime_of_main() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    let others_run_tasks = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
    (others_run_tasks && task::try_id().is_none()).then_some(runtime)
}

fn wait_for(releases: &mut JoinSet<()>, runtime: &Handle) {
    let all = async { while releases.join_next().await.is_some() {} };
    // On a separate thread, because this one is already within `block_on`.
    let wait = || runtime.block_on(async { timeout(TIMEOUT, all).await });
    thread::scope(|scope| {
        if let Ok(waiting) = thread::Builder::new().spawn_scoped(scope, wait) {
            let _ = waiting.join();
        }
    });
}
