//! Checks whether leases are safe with this etcd configuration.

use serde_json::{Value, json};

use super::failure::Ambiguity;
use super::gateway::Gateway;
use crate::Result;
use crate::store::Check;

/// Checks the cluster's members and alarms.
pub(super) async fn checks(gateway: &Gateway) -> Result<Vec<Check>> {
    let send = async |path: &str, body: Value| {
        let (answer, _) = gateway.call(path, &body, Ambiguity::None).await?;
        Ok::<_, crate::Error>(answer)
    };
    let members = send("/v3/cluster/member/list", json!({})).await?;
    // With authentication, only administrators have the right.
    let alarms = send("/v3/maintenance/alarm", json!({})).await.ok();
    let mut checks = vec![members_of(&members)];
    checks.extend(alarms.map(|alarms| alarm_in(&alarms)));
    Ok(checks)
}

fn members_of(answer: &Value) -> Check {
    let members = answer["members"].as_array().map(Vec::as_slice);
    let members = members.unwrap_or_default().iter();
    match members.filter(|member| member["isLearner"] != true).count() {
        1 => Check::yellow(
            "the cluster has one member: while it is down, no lease is available",
            "etcdctl member add: three members tolerate the loss of one",
        ),
        2 => Check::yellow(
            "the cluster has two members: if either is down, there is no majority",
            "etcdctl member add: three members tolerate the loss of one",
        ),
        many => Check::green(format!("the cluster has {many} members")),
    }
}

fn alarm_in(answer: &Value) -> Check {
    let alarms = answer["alarms"].as_array().map(Vec::as_slice);
    match alarms.unwrap_or_default().first() {
        None => Check::green("no alarm is raised"),
        Some(alarm) if alarm["alarm"] == "NOSPACE" => Check::red(
            "etcd is full and refuses writes",
            "etcdctl compact and defrag, then alarm disarm; start it with --auto-compaction-retention=1h",
        ),
        Some(alarm) => Check::red(
            format!("etcd has raised the alarm {}", alarm["alarm"]),
            "etcdctl alarm list, and check the members' logs",
        ),
    }
}
