//! Several servers that form one database.

use std::fmt;
use std::io;

use crate::recipe::Member;
use crate::server::Server;
use crate::{Missing, start};

/// A cluster of a single test: `etcd` or `mongodb`. It ends when this is dropped, and when this process ends.
///
/// Methods panic with the end of a server's log if it does not start.
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts this many nodes, and waits until they have a leader.
    pub async fn start(scheme: &str, nodes: usize) -> Result<Self, Missing> {
        let nodes = Server::builder(scheme).start_many(nodes).await?;
        Ok(Self { nodes })
    }

    /// Returns the store URL with every node.
    pub fn url(&self) -> String {
        let ports: Vec<_> = self.nodes.iter().map(Server::port).collect();
        self.nodes[0].inner.recipe.url(&ports)
    }

    /// Returns the nodes, so that they can be killed, paused and restarted individually.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Returns the leader (etcd) or primary (MongoDB). Waits until there is one.
    pub async fn leader(&self) -> &Server {
        let recipe = self.nodes[0].inner.recipe.clone();
        let members: Vec<Member> = self.nodes.iter().map(|node| node.inner.member()).collect();
        let finding = tokio::task::spawn_blocking(move || -> io::Result<usize> {
            let mut leader = None;
            let found = start::wait_until(
                || {
                    leader = recipe.leader(&members).ok().flatten();
                    leader.is_some()
                },
                || true,
            );
            found
                .ok()
                .and(leader)
                .ok_or_else(|| io::Error::other("the cluster has no leader"))
        });
        let index = finding.await.expect("the search does not panic");
        &self.nodes[index.expect("the cluster has a leader")]
    }

    /// Kills the leader with `kill -9`, and returns it, so that it can be restarted.
    pub async fn kill_leader(&self) -> &Server {
        let leader = self.leader().await;
        leader.kill().await;
        leader
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.url())
    }
}
