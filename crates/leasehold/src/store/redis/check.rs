//! Checks whether leases are safe with this Redis configuration.

use std::collections::BTreeMap;

use crate::store::Check;

/// Checks the output of `INFO` and, if permitted, `CONFIG GET`.
pub(super) fn checks(info: &str, config: &BTreeMap<String, String>, wait: bool) -> Vec<Check> {
    let info: BTreeMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .collect();
    let said = |key: &str| {
        info.get(key)
            .copied()
            .or_else(|| config.get(key).map(String::as_str))
            .unwrap_or_default()
    };
    vec![
        role(said("role")),
        eviction(said("maxmemory_policy")),
        persistence(said("aof_enabled"), said("appendfsync")),
        replicas(said("connected_slaves"), wait),
    ]
}

fn role(role: &str) -> Check {
    match role {
        "master" => Check::green("it is a primary"),
        other => Check::red(
            format!("its role is `{other}`"),
            "use the URL of the primary",
        ),
    }
}

fn eviction(policy: &str) -> Check {
    match policy {
        "noeviction" => Check::green("keys are never evicted"),
        policy if policy.starts_with("volatile-") => Check::green(format!(
            "only keys with a ttl are evicted ({policy}), and records have none"
        )),
        policy => Check::red(
            format!("records may be evicted: maxmemory-policy is `{policy}`"),
            "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE",
        ),
    }
}

fn persistence(aof: &str, fsync: &str) -> Check {
    match (aof, fsync) {
        ("1", "always") => Check::green("every write is on the disk before it is acknowledged"),
        ("1", "") => Check::yellow(
            "cannot determine whether every write waits for the disk",
            "ACL SETUSER … +config|get for this user",
        ),
        ("1", _) => Check::yellow(
            "a crash of the machine may lose up to a second of acknowledged writes, including fences",
            "CONFIG SET appendfsync always, then CONFIG REWRITE",
        ),
        _ => Check::red(
            "writes are not persisted immediately (no AOF): a restart loses leases",
            "CONFIG SET appendonly yes, CONFIG SET appendfsync always, then CONFIG REWRITE",
        ),
    }
}

fn replicas(connected: &str, wait: bool) -> Check {
    match (connected, wait) {
        ("0" | "", _) => Check::green("it has no replicas"),
        (_, true) => Check::green("writes wait for replicas"),
        (some, false) => Check::yellow(
            format!(
                "{some} replicas follow asynchronously: a failover may lose acknowledged writes"
            ),
            "add `?wait=1` to the store URL, and set min-replicas-to-write",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Level;

    fn levels(info: &str, wait: bool) -> Vec<Level> {
        let config = BTreeMap::from([("appendfsync".to_owned(), "always".to_owned())]);
        checks(info, &config, wait)
            .iter()
            .map(|check| check.level)
            .collect()
    }

    #[test]
    fn unsafe_configuration_is_red() {
        let good =
            "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert_eq!(levels(good, false), [Level::Green; 4]);
        let bad =
            "role:slave\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:2\r\n";
        assert_eq!(
            levels(bad, false),
            [Level::Red, Level::Red, Level::Red, Level::Yellow]
        );
        assert_eq!(levels(bad, true)[3], Level::Green);
        let unknown = checks(good, &BTreeMap::new(), false);
        assert_eq!(unknown[2].level, Level::Yellow);
    }
}
