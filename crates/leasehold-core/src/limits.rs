//! Limits on everything.

use std::time::Duration;

/// Live holders of one record.
pub const MAX_HOLDERS: usize = 256;
/// Bytes of a body.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// Bytes of an owner.
pub const MAX_OWNER_BYTES: usize = 128;
/// Bytes of a state's label.
pub const MAX_STATE_BYTES: usize = 64;
/// Bytes of the reason of a forced break.
pub const MAX_REASON_BYTES: usize = 256;
/// The shortest ttl of a lock, and the shortest period of a gate.
pub const MIN_TTL: Duration = Duration::from_millis(1);
/// The longest ttl of a lock: a day.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest period of a gate: ten years.
pub const MAX_PERIOD: Duration = Duration::from_secs(3652 * 24 * 60 * 60);
/// The longest reservation.
pub const MAX_RESERVATION: Duration = Duration::from_secs(5);
/// How long a waiter may refresh its reservation. After that it may not reserve again for as long.
pub const MAX_RESERVING: Duration = Duration::from_secs(30);
/// The shortest retention of a purge.
pub const MIN_RETENTION: Duration = Duration::from_secs(60 * 60);
