//! A job that only one process runs at a time, and that resumes where the last one stopped.
//!
//! ```sh
//! cargo run -p leasehold --example job             # stop it with Ctrl-C or kill -9, and start it again
//! cargo run -p leasehold --example job             # in another shell: waits for its turn
//! ```

use std::time::Duration;

const STEPS: u32 = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> leasehold::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| {
        let folder = std::env::temp_dir();
        format!("{}/leasehold-job.db", folder.display())
    });
    let client = leasehold::connect(&format!("sqlite:{file}")).await?;
    let turn = client
        .lease("job")
        .ttl(Duration::from_secs(5))
        .wait_forever();
    turn.run(|lease| async move {
        let done: u32 = lease.body().parse().unwrap_or(0);
        println!("fence {}: resuming after step {done}", lease.fence());
        for step in done + 1..=STEPS {
            tokio::time::sleep(Duration::from_millis(500)).await;
            println!("step {step}");
            lease.update(step.to_string()).await?;
        }
        println!("done: starting over next time");
        lease.update("").await
    })
    .await??;
    client.close().await;
    Ok(())
}
