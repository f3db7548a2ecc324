//! Keeps the leases of a client: renews them in time, many in one call, and gives up those that it could not.
//!
//! One task for all of them, started with the first lease and gone with the last. It never waits for an answer
//! itself: renewals are tasks of their own, so that a hung one keeps no lease from being given up in time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::BootTime;
use tokio::sync::Notify;

use super::standing::{Over, Standing};
use super::table::{Id, Table};
use crate::host::{Host, sleep_until};
use crate::{Error, Holding, Leases, RenewRequest, Renewed, Result};

/// The longest that one attempt to renew may take, however long the ttl: connections die silently.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The first pause after a failed attempt. Each is twice as long as the one before…
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// …up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The shortest pause.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The keeper looks at the boot clock at least this often, and stays this long without a lease: programs that take
/// one after the other need no new one each time.
const TICK: Duration = Duration::from_millis(100);
/// How long to let go waits for a renewal under way. One that arrives later is harmless, since the store refuses
/// its fence.
const JOIN: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    leases: Arc<dyn Leases>,
    host: Arc<dyn Host>,
    table: Mutex<Table>,
    wake: Notify,
}

type Batch = Vec<(Id, Arc<Standing>)>;

impl Keeper {
    pub(super) fn new(leases: Arc<dyn Leases>, host: Arc<dyn Host>) -> Self {
        Self {
            leases,
            host,
            table: Mutex::default(),
            wake: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease from now on.
    pub(super) fn keep(self: &Arc<Self>, standing: Arc<Standing>) -> Id {
        let due = self.third(&standing);
        let mut table = self.table();
        let id = table.insert(standing, due);
        let attended = std::mem::replace(&mut table.attended, true);
        self.hurry(&table);
        drop(table);
        if !attended {
            // Not under the lock: a runtime that shuts down drops the attendance at once.
            tokio::spawn(Attendance::of(self.clone()).attend());
        }
        id
    }

    /// Wakes the attendant if it would look too late.
    fn hurry(&self, table: &Table) {
        if table.next().is_some_and(|next| next < table.planned) {
            self.wake.notify_one();
        }
    }

    /// Gives up what is over, starts the renewals that are due, and tells when to look again; `None` when there has
    /// been no lease for a while.
    fn look(self: &Arc<Self>, idle: &mut bool) -> Option<BootTime> {
        let now = self.host.boot_time();
        let mut table = self.table();
        while let Some(standing) = table.take_over(now) {
            standing.end(Over::Lost(Error::Expired));
        }
        loop {
            let batch = table.take_due(now);
            if batch.is_empty() {
                break;
            }
            let keeper = self.clone();
            tokio::spawn(async move { keeper.renew(batch).await });
        }
        if std::mem::replace(idle, table.is_empty()) && *idle {
            // Under the same lock that `keep` takes: a lease that comes now brings its own attendant.
            table.attended = false;
            return None;
        }
        let tick = now + TICK;
        table.planned = table.next().map_or(tick, |next| next.min(tick));
        Some(table.planned)
    }

    /// Renews leases that are marked as being renewed.
    async fn renew(&self, batch: Batch) -> Vec<Result<()>> {
        let now = self.host.boot_time();
        let left = batch.iter().map(|(_, standing)| standing.ends().since(now));
        // Half of what is left: time enough for another attempt, and another.
        let within = (left.min().unwrap_or_default() / 2).min(ATTEMPT);
        let requests = batch
            .iter()
            .map(|(_, standing)| RenewRequest {
                name: standing.name.clone(),
                fence: standing.fence,
                ttl: None,
            })
            .collect();
        let renewal = self.leases.renew(requests, within);
        // A little more, for those that keep to the limit but answer only then.
        let answers = tokio::time::timeout(within + within / 4, renewal)
            .await
            .unwrap_or_default();
        let missing = || Err(Error::Unavailable("the renewal was not answered".into()));
        let answers = answers.into_iter().chain(std::iter::repeat_with(missing));
        let settled = batch.into_iter().zip(answers);
        let settled = settled.map(|((id, standing), answer)| self.settle(id, &standing, answer));
        settled.collect()
    }

    /// Takes in the answer to a renewal.
    fn settle(&self, id: Id, standing: &Standing, answer: Result<Renewed>) -> Result<()> {
        let mut table = self.table();
        let gone = || standing.over().map_or(Error::Expired, Over::reason);
        // Given up meanwhile: no answer revives it.
        let kept = table.get_mut(id).ok_or_else(gone)?;
        kept.renewing = false;
        standing.announce();
        if kept.closing {
            return answer.map(drop);
        }
        kept.failures = if answer.is_ok() { 0 } else { kept.failures + 1 };
        let failures = kept.failures;
        let result = self.apply(&mut table, id, standing, answer);
        let due = match &result {
            Ok(()) => self.third(standing),
            Err(error) => {
                tracing::debug!(name = %standing.name, %error, failures, "not renewed");
                self.pause(standing, failures)
            }
        };
        table.schedule(id, due);
        self.hurry(&table);
        result
    }

    /// Takes in an answer that renews a lease, or tells that it is over.
    fn apply(
        &self,
        table: &mut Table,
        id: Id,
        standing: &Standing,
        answer: Result<Renewed>,
    ) -> Result<()> {
        let result = match answer {
            // Between its deadline and now its holder had no right to believe. Once over, always over.
            Ok(_) if self.host.boot_time() >= standing.ends() => Err(Error::Expired),
            Ok(renewed) => {
                standing.extend(renewed.deadline, renewed.renewal.expires_at);
                table.moved(id);
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(reason @ (Error::Fenced | Error::Expired)) = &result {
            table.remove(id);
            standing.end(Over::Lost(reason.clone()));
        }
        result
    }

    /// Takes in what an update said of the lease.
    pub(super) fn updated(&self, id: Id, standing: &Standing, answer: Result<Renewed>) {
        let mut table = self.table();
        if table.get_mut(id).is_some() {
            let renewed = self.apply(&mut table, id, standing, answer).is_ok();
            let kept = table.get_mut(id);
            if kept.is_some_and(|kept| renewed && !kept.renewing && !kept.closing) {
                table.schedule(id, self.third(standing));
            }
        }
    }

    /// Renews a lease now, after a renewal that is under way.
    pub(super) async fn renew_now(self: &Arc<Self>, id: Id, standing: &Standing) -> Result<()> {
        let start = || match (standing.over(), self.table().start(id)) {
            (Some(over), _) => Some(Err(over.reason())),
            (None, started) => started.map(Ok),
        };
        let batch = vec![standing.wait_for(start).await?];
        let keeper = self.clone();
        // A task of its own, so that a caller that goes away leaves no renewal without an end.
        let renewal = tokio::spawn(async move { keeper.renew(batch).await });
        let answers = renewal.await.unwrap_or_default();
        answers
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(Error::Unavailable("the renewal was ended".into())))
    }

    /// Starts no more renewals of this lease; the answer of one under way means nothing.
    pub(super) fn stop(&self, id: Id) {
        let mut table = self.table();
        table.unschedule(id);
        if let Some(kept) = table.get_mut(id) {
            kept.closing = true;
        }
    }

    /// Waits for a renewal that is under way.
    pub(super) async fn join(&self, id: Id, standing: &Standing) {
        let joined = standing.wait_for(|| {
            let renewing = self.table().get_mut(id).is_some_and(|kept| kept.renewing);
            (!renewing).then_some(())
        });
        let _ = tokio::time::timeout(JOIN, joined).await;
    }

    /// Lets go of a lease, after a renewal that is under way. Whether there was something to let go of.
    pub(super) async fn let_go(&self, id: Id, standing: &Standing) -> Result<bool> {
        self.stop(id);
        standing.end(Over::LetGo);
        self.join(id, standing).await;
        self.forget(id, standing, Over::LetGo);
        let who = Holding::Fence(standing.fence);
        self.leases.release(&standing.name, who).await
    }

    /// Renews it again, after all.
    pub(super) fn reopen(&self, id: Id, standing: &Standing) {
        let mut table = self.table();
        if let Some(kept) = table.get_mut(id) {
            kept.closing = false;
            if !kept.renewing {
                table.schedule(id, self.third(standing));
            }
        }
        standing.announce();
    }

    /// Keeps it no more.
    pub(super) fn forget(&self, id: Id, standing: &Standing, over: Over) {
        self.table().remove(id);
        standing.end(over);
    }

    /// A third of what is left from now, a little early at random so that fleets do not renew in step.
    fn third(&self, standing: &Standing) -> BootTime {
        let now = self.host.boot_time();
        let third = standing.ends().since(now).min(standing.ttl) / 3;
        now + self.jitter(third, 90)
    }

    /// The pause after so many failures: never more than a quarter of what is left.
    fn pause(&self, standing: &Standing, failures: u32) -> BootTime {
        let now = self.host.boot_time();
        let pause = FIRST_PAUSE
            .saturating_mul(1 << failures.saturating_sub(1).min(10))
            .min(LONGEST_PAUSE)
            .min(standing.ends().since(now) / 4);
        now + self.jitter(pause, 50).max(SHORTEST_PAUSE)
    }

    /// From `least` per cent of a span to all of it, at random.
    fn jitter(&self, span: Duration, least: u32) -> Duration {
        let random = (self.host.random() % u128::from(101 - least)) as u32;
        span * (least + random) / 100
    }
}

/// The task that looks after a keeper's table.
struct Attendance {
    keeper: Arc<Keeper>,
    ended: bool,
}

impl Attendance {
    fn of(keeper: Arc<Keeper>) -> Self {
        Self {
            keeper,
            ended: false,
        }
    }

    async fn attend(mut self) {
        let (keeper, mut idle) = (&self.keeper, false);
        while let Some(next) = keeper.look(&mut idle) {
            tokio::select! {
                () = sleep_until(&*keeper.host, next) => {}
                () = keeper.wake.notified() => {}
            }
        }
        self.ended = true;
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The runtime has gone: nobody renews what is left any more, nor watches the time.
        let mut table = self.keeper.table();
        table.attended = false;
        for standing in table.drain() {
            standing.end(Over::Lost(Error::Expired));
        }
    }
}
