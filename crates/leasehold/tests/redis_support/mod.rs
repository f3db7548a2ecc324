//! Shared by the tests of the Redis store.
#![allow(dead_code, reason = "each test uses a part of it")]

use leasehold_testbed::Server;

/// Connects without a timeout: on a busy machine an answer may take longer than the default of half a second.
pub(crate) async fn connect(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a good URL");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("connects")
}

/// Runs a command, given as words separated by spaces, and returns its answer.
pub(crate) async fn run_command<T: redis::FromRedisValue>(server: &Server, command: &str) -> T {
    let mut connection = connect(server).await;
    let mut words = command.split(' ');
    let mut call = redis::cmd(words.next().expect("a command"));
    for word in words {
        call.arg(word);
    }
    call.query_async(&mut connection).await.expect("an answer")
}
