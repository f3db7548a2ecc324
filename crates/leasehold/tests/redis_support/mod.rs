//! What the tests of the Redis store share.
#![allow(dead_code, reason = "each test uses its own part of it")]

use leasehold_testbed::Server;

/// What Redis answers to a command, words with spaces between them.
pub(crate) async fn ask<T: redis::FromRedisValue>(server: &Server, command: &str) -> T {
    let client = redis::Client::open(server.url()).expect("a good URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("it is there");
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().expect("a command"));
    for word in words {
        asked.arg(word);
    }
    asked.query_async(&mut connection).await.expect("an answer")
}
