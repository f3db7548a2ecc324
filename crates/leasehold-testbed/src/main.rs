//! Starts servers manually: `cargo run -p leasehold-testbed -- redis` starts Redis, prints its store URL, and ends it
//! with Ctrl-C. Without arguments it lists the servers; `--missing` lists only those that are not installed.

use std::any::Any;

use leasehold_testbed::{Missing, SERVERS, Server, installed};

/// The server that is not in [`SERVERS`], because it runs in this process.
const IN_PROCESS: &str = "cosmos";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Missing> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        None => list(),
        Some("--missing") => {
            let missing = all().filter(|name| installed(name).is_err());
            missing.for_each(|name| println!("{name}"));
        }
        Some(_) => {
            let mut running = Vec::new();
            for name in &arguments {
                let (url, server) = start(name).await?;
                println!("{url}");
                running.push(server);
            }
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

fn all() -> impl Iterator<Item = &'static str> {
    SERVERS.into_iter().chain([IN_PROCESS])
}

/// Starts a server. Returns its store URL, and a guard that ends it when it is dropped.
async fn start(name: &str) -> Result<(String, Box<dyn Any>), Missing> {
    #[cfg(feature = "cosmos")]
    if name == IN_PROCESS {
        let emulator = leasehold_testbed::Cosmos::start().await;
        return Ok((emulator.url(), Box::new(emulator)));
    }
    if name == IN_PROCESS {
        return Err(Missing::Feature(IN_PROCESS));
    }
    let server = Server::start(name).await?;
    Ok((server.url(), Box::new(server)))
}

fn list() {
    for name in all() {
        match installed(name) {
            Ok(()) => println!("{name:<12}is installed"),
            Err(missing) => println!("{name:<12}{missing}"),
        }
    }
}
