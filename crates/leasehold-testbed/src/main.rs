//! The testbed by hand: `cargo run -p leasehold-testbed -- redis` starts a Redis, prints its store URL, and ends it with
//! Ctrl-C. Without arguments it lists what there is; `--missing` lists only what is not installed, by name.

use leasehold_testbed::{SERVERS, Server, installed};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), leasehold_testbed::Missing> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        None => list(),
        Some("--missing") => {
            let missing = SERVERS.into_iter().filter(|name| installed(name).is_err());
            missing.for_each(|name| println!("{name}"));
        }
        Some(_) => {
            let mut servers = Vec::new();
            for name in &arguments {
                let server = Server::start(name).await?;
                println!("{}", server.url());
                servers.push(server);
            }
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

fn list() {
    for name in SERVERS {
        match installed(name) {
            Ok(()) => println!("{name:<10}is installed"),
            Err(missing) => println!("{name:<10}{missing}"),
        }
    }
}
