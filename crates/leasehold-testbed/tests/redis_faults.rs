//! The basis of fault tests: a kill loses no acknowledged write, clocks step, proxies hold, cut and count traffic.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use leasehold_testbed::{Proxy, Server, Traffic};

/// Sends a command to Redis, and returns its one-line answer.
fn redis(stream: &mut TcpStream, command: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    let server = Server::start("redis").await.unwrap();
    let port = server.port();
    assert_eq!(redis(&mut connect(port), "SET a 1").unwrap(), "+OK");
    server.kill().await;
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    server.restart().await;
    assert_eq!(redis(&mut connect(port), "INCR a").unwrap(), ":2");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_clock_can_be_stepped() {
    let server = Server::builder("redis").own_clock().start().await.unwrap();
    let mut stream = connect(server.port());
    let mut server_time = || {
        let script = "EVAL return(tonumber(redis.call([[TIME]])[1])) 0";
        let seconds = redis(&mut stream, script).unwrap();
        seconds.trim_start_matches(':').parse::<i64>().unwrap()
    };
    let before = server_time();
    server.step_clock(3600);
    assert!(server_time() >= before + 3600);
    server.step_clock(-3600);
    assert!(server_time() < before);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_counts_holds_and_cuts_traffic() {
    let server = Server::start("redis").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    assert!(
        server
            .url_at(proxy.port())
            .contains(&proxy.port().to_string())
    );

    let mut stream = connect(proxy.port());
    for _ in 0..3 {
        assert_eq!(redis(&mut stream, "PING").unwrap(), "+PONG");
    }
    let traffic = Traffic {
        connections: 1,
        round_trips: 3,
        sent: 3 * 6,
        received: 3 * 7,
    };
    assert_eq!(proxy.traffic(), traffic);

    proxy.blackhole();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    assert!(stream.read(&mut [0; 64]).is_err());
    assert_eq!(proxy.traffic().round_trips, 3);

    proxy.forward();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 7);

    proxy.cut();
    assert!(redis(&mut stream, "PING").is_err());
    assert_eq!(redis(&mut connect(proxy.port()), "PING").unwrap(), "+PONG");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_refuses_connections_until_it_forwards_again() {
    let server = Server::start("redis").await.unwrap();
    let proxy = Proxy::to(server.port()).await;
    let mut stream = connect(proxy.port());
    assert_eq!(redis(&mut stream, "PING").unwrap(), "+PONG");
    proxy.refuse();
    assert!(redis(&mut stream, "PING").is_err());
    while TcpStream::connect(("127.0.0.1", proxy.port())).is_ok() {
        tokio::task::yield_now().await;
    }
    proxy.forward();
    while TcpStream::connect(("127.0.0.1", proxy.port())).is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(redis(&mut connect(proxy.port()), "PING").unwrap(), "+PONG");
}
