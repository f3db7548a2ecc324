//! Runs the Rust examples of the README and the guides as tests.

#[doc = include_str!("../../../README.md")]
struct Readme;
#[doc = include_str!("../../../docs/concepts.md")]
struct Concepts;
#[doc = include_str!("../../../docs/reference/rust.md")]
struct RustReference;
#[doc = include_str!("../../../docs/guides/elect-a-leader.md")]
struct ElectALeader;
#[doc = include_str!("../../../docs/guides/limit-concurrency.md")]
struct LimitConcurrency;
#[doc = include_str!("../../../docs/guides/lock-several-names.md")]
struct LockSeveralNames;
#[doc = include_str!("../../../docs/guides/resume-a-job.md")]
struct ResumeAJob;
#[doc = include_str!("../../../docs/guides/run-a-cron-job-once.md")]
struct RunACronJobOnce;
#[doc = include_str!("../../../docs/guides/throttle-alerts.md")]
struct ThrottleAlerts;
#[doc = include_str!("../../../docs/guides/work-queue.md")]
struct WorkQueue;
