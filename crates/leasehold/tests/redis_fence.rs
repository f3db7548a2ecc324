//! Fence checks in Redis scripts.
#![cfg(feature = "redis")]

mod zombie;

use leasehold::fence::{self, Bearer};
use leasehold::host::{Host as _, Machine};
use redis::aio::MultiplexedConnection;
use zombie::{Account, Protection};

/// The keys of a single test.
struct Keys {
    /// The prefix of all of them.
    prefix: String,
    leases: String,
    connection: MultiplexedConnection,
}

impl Account for Keys {
    async fn open() -> Self {
        let server = leasehold_testbed::shared("redis").await.unwrap();
        let prefix = format!("t{:016x}", Machine.random() as u64);
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let keys = Self {
            leases: format!("{}?prefix={prefix}", server.url()),
            prefix,
            connection,
        };
        let mut connection = keys.connection.clone();
        let mut set = redis::cmd("SET");
        set.arg(format!("{}:balance", keys.prefix)).arg(100);
        set.exec_async(&mut connection).await.unwrap();
        keys
    }

    fn leases(&self) -> &str {
        &self.leases
    }

    async fn balance(&self) -> i64 {
        let mut connection = self.connection.clone();
        let mut get = redis::cmd("GET");
        get.arg(format!("{}:balance", self.prefix));
        get.query_async(&mut connection).await.unwrap()
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let mut connection = self.connection.clone();
        let balance_key = format!("{}:balance", self.prefix);
        // Uses all keys and arguments, so that an additional one would be detected.
        let write = "return redis.call('SET', unpack(KEYS), unpack(ARGV))";
        let prelude = match protection {
            Protection::None => None,
            Protection::Check => Some(fence::redis::check(bearer).prefix(&self.prefix)),
            Protection::Guard => Some(fence::redis::guard(bearer).prefix(&self.prefix)),
        };
        let text = match &prelude {
            None => write.to_owned(),
            Some(prelude) => prelude.before(write),
        };
        let script = redis::Script::new(&text);
        let mut call = script.prepare_invoke();
        call.key(balance_key).arg(balance);
        if let Some(prelude) = prelude {
            call.key(prelude.key()).arg(prelude.fence());
        }
        let written: redis::RedisResult<String> = call.invoke_async(&mut connection).await;
        match written {
            Ok(answer) => answer == "OK",
            Err(error) => {
                assert_eq!(error.code(), Some("FENCED"), "{error}");
                false
            }
        }
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<Keys>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Keys>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<Keys>().await;
}
