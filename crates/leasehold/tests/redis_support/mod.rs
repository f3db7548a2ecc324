//! Shared by the tests of the Redis store.
#![allow(dead_code, reason = "each test uses a part of it")]

use leasehold_testbed::Server;

/// Runs a command, given as words separated by spaces, and returns its answer.
pub(crate) async fn run_command<T: redis::FromRedisValue>(server: &Server, command: &str) -> T {
    let client = redis::Client::open(server.url()).expect("a valid URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("connects");
    let mut words = command.split(' ');
    let mut call = redis::cmd(words.next().expect("a command"));
    for word in words {
        call.arg(word);
    }
    call.query_async(&mut connection).await.expect("an answer")
}
