//! `Remote` against services that hang, die or lose answers, and against other servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::Server;
use leasehold::core::{Fence, GrantKind, Mode, Name, Nonce};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakRequest, Error, HolderKey, Leases as _, ListRequest,
    Remote, RenewRequest, UpdateOutcome, UpdateRequest,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn job() -> Name {
    Name::lock("job").unwrap()
}

fn acquire() -> AcquireRequest {
    AcquireRequest {
        name: job(),
        nonce: Nonce::new("mine").unwrap(),
        owner: "me".into(),
        ttl: Duration::from_secs(30),
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    }
}

fn update(fence: u64, then_release: bool) -> UpdateRequest {
    UpdateRequest {
        name: job(),
        fence: Fence::new(fence).unwrap(),
        body: Some("new".into()),
        state: None,
        then_release,
    }
}

fn renewal(fence: u64) -> RenewRequest {
    RenewRequest {
        name: job(),
        fence: Fence::new(fence).unwrap(),
        ttl: None,
    }
}

/// Listens, and passes each connection to `serve` with its number.
pub(crate) async fn listen<F>(
    serve: impl Fn(TcpStream, u32) -> F + Send + 'static,
) -> (Remote, Arc<AtomicU32>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, number));
        }
    });
    (Remote::connect(&url).unwrap(), count)
}

/// Reads the head of a request.
async fn read_head(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => seen.push(byte),
            Err(_) => return,
        }
    }
}

/// Starts a server that answers every request with these bytes and closes the connection.
async fn start_answering(answer: &'static str) -> (Remote, Arc<AtomicU32>) {
    listen(move |mut stream, _| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        // Unread bytes would cause a reset, which can discard the answer.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await
}

/// Starts a server that reads each request and closes the connection.
pub(crate) async fn start_dying() -> (Remote, Arc<AtomicU32>) {
    listen(|mut stream, _| async move {
        read_head(&mut stream).await;
    })
    .await
}

#[tokio::test]
async fn hanging_renewal_returns_within_its_limit() {
    let (remote, _) = listen(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let within = Duration::from_secs(3);
    let started = Instant::now();
    let renewed = remote.renew(vec![renewal(1), renewal(2)], within).await;
    assert!(started.elapsed() < within, "{:?}", started.elapsed());
    for renewed in renewed {
        assert!(
            matches!(renewed, Err(Error::Indeterminate(_))),
            "{renewed:?}"
        );
    }
}

/// Relays bytes both ways until one side ends. Once `silent` is set, relays nothing and keeps the connections open.
async fn relay(mut near: TcpStream, mut far: TcpStream, silent: Arc<AtomicBool>) {
    let (mut up, mut down) = ([0; 1024], [0; 1024]);
    loop {
        let (bytes, to) = tokio::select! {
            read = near.read(&mut up) => (&up[..read.unwrap_or(0)], &mut far),
            read = far.read(&mut down) => (&down[..read.unwrap_or(0)], &mut near),
        };
        if silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn lease_is_lost_in_time_when_its_service_hangs() {
    let server = Server::start().await;
    let address = server.address;
    let silent = Arc::new(AtomicBool::new(false));
    let silenced = silent.clone();
    let (remote, _) = listen(move |near, _| {
        let silent = silenced.clone();
        async move {
            let far = TcpStream::connect(address).await.unwrap();
            relay(near, far, silent).await;
        }
    })
    .await;
    let client = leasehold::Client::new(Arc::new(remote));
    let ttl = Duration::from_millis(600);
    let started = Instant::now();
    let lease = client.lease("job").ttl(ttl).acquire().await.unwrap();
    silent.store(true, Ordering::SeqCst);
    tokio::time::timeout(crate::common::TIMEOUT, lease.lost())
        .await
        .expect("lost, although the service does not answer");
    // One renewal may have been answered before, and the machine may be busy.
    assert!(started.elapsed() <= ttl * 4, "{:?}", started.elapsed());
}

#[tokio::test]
async fn unreachable_service_is_unavailable() {
    // A port that is bound but has no listener.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let remote = Remote::connect(&url).unwrap();
    let acquired = remote.acquire(acquire()).await;
    assert!(
        matches!(&acquired, Err(Error::Unavailable(why)) if why.contains(&url)),
        "{acquired:?}"
    );
    let updated = remote.update(update(1, false)).await;
    assert!(matches!(updated, Err(Error::Unavailable(_))), "{updated:?}");
    let renewed = remote.renew(vec![renewal(1)], Duration::from_secs(1)).await;
    assert!(
        matches!(renewed[0], Err(Error::Unavailable(_))),
        "{renewed:?}"
    );
}

#[tokio::test]
async fn only_repeatable_requests_are_retried() {
    let (remote, attempts) = start_dying().await;
    let acquired = remote.acquire(acquire()).await;
    assert!(
        matches!(acquired, Err(Error::Indeterminate(_))),
        "{acquired:?}"
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 4);

    let (remote, attempts) = start_dying().await;
    let released = remote
        .release(&job(), HolderKey::Fence(Fence::new(1).unwrap()))
        .await;
    assert!(
        matches!(released, Err(Error::Indeterminate(_))),
        "{released:?}"
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 4);

    let (remote, attempts) = start_dying().await;
    let shown = remote.show(&job()).await;
    assert!(matches!(shown, Err(Error::Unavailable(_))), "{shown:?}");
    assert_eq!(attempts.load(Ordering::SeqCst), 4);

    let (remote, attempts) = start_dying().await;
    let updated = remote.update(update(1, false)).await;
    assert!(
        matches!(updated, Err(Error::Indeterminate(_))),
        "{updated:?}"
    );
    assert_eq!(attempts.load(Ordering::SeqCst), 1);

    let (remote, attempts) = start_dying().await;
    let force = BreakRequest::Force {
        fence: None,
        reason: "why".into(),
        now: true,
    };
    let broken = remote.break_lease(&job(), force).await;
    assert!(matches!(broken, Err(Error::Indeterminate(_))), "{broken:?}");
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

/// Starts a proxy that loses the answers on its first `lost` connections.
pub(crate) async fn start_losing(address: SocketAddr, lost: u32) -> (Remote, Arc<AtomicU32>) {
    listen(move |mut near, number| async move {
        let mut far = TcpStream::connect(address).await.unwrap();
        if number >= lost {
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            return;
        }
        let mut request = vec![0; 4096];
        let length = near.read(&mut request).await.unwrap();
        far.write_all(&request[..length]).await.unwrap();
        // Once it has answered, the service has performed the request.
        let _ = far.read(&mut request).await.unwrap();
    })
    .await
}

#[tokio::test]
async fn requests_with_lost_answers_are_retried() {
    let server = Server::start().await;
    let (remote, connections) = start_losing(server.address, 2).await;
    let AcquireOutcome::Granted(hold) = remote.acquire(acquire()).await.unwrap() else {
        panic!("the lease is free");
    };
    assert_eq!(hold.grant.granted, GrantKind::Again);
    assert_eq!(connections.load(Ordering::SeqCst), 3);
    let fence = hold.grant.fence.get();

    let (remote, _) = start_losing(server.address, 1).await;
    let renewed = remote
        .renew(vec![renewal(fence)], crate::common::TIMEOUT)
        .await;
    assert_eq!(renewed[0].as_ref().unwrap().renewal.fence.get(), fence);

    let (remote, _) = start_losing(server.address, 1).await;
    assert_eq!(
        remote.update(update(fence, true)).await,
        Ok(UpdateOutcome::Completed)
    );

    let (remote, _) = start_losing(server.address, 1).await;
    let released = remote
        .release(&job(), HolderKey::Fence(hold.grant.fence))
        .await;
    assert_eq!(released, Ok(true));
}

#[tokio::test]
async fn update_that_may_have_been_written_is_not_reported_as_fenced() {
    let server = Server::start().await;
    let fence = server.acquire("/locks/job?nonce=mine").await;
    let (remote, _) = start_losing(server.address, 1).await;
    let task = tokio::spawn(async move { remote.update(update(fence, true)).await });
    // Between the lost answer and the retry, another holder acquires and releases the lease.
    let other = server.acquire("/locks/job?nonce=other&wait=30s").await;
    server.delete(&format!("/locks/job/{other}")).await.ok();
    let updated = task.await.unwrap();
    assert!(
        matches!(
            updated,
            Err(Error::Indeterminate(_)) | Ok(UpdateOutcome::Completed)
        ),
        "{updated:?}"
    );
    assert_eq!(server.get("/locks/job").await.ok().text("body"), "new");
}

#[tokio::test]
async fn connections_are_reused() {
    let server = Server::start().await;
    let (remote, connections) = start_losing(server.address, 0).await;
    for _ in 0..20 {
        remote.acquire(acquire()).await.unwrap();
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connection_closed_by_the_service_is_replaced() {
    let store = leasehold::store::open("memory:").await.unwrap();
    let engine = leasehold::engine::Engine::start(store).await.unwrap();
    let mut config = leasehold_server::Config::default();
    config.head_timeout = Duration::from_millis(50);
    let server = Server::start_with(engine, config).await;
    let address = server.address;
    let ended = Arc::new(AtomicU32::new(0));
    let counted = ended.clone();
    let (remote, connections) = listen(move |near, _| {
        let ended = counted.clone();
        async move {
            let far = TcpStream::connect(address).await.unwrap();
            relay(near, far, Arc::default()).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let AcquireOutcome::Granted(hold) = remote.acquire(acquire()).await.unwrap() else {
        panic!("the lease is free");
    };
    while ended.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // An update is never sent twice, so it must not be sent into the dead connection.
    let fence = hold.grant.fence.get();
    remote.update(update(fence, false)).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    assert_eq!(server.get("/locks/job").await.ok().text("body"), "new");
}

#[tokio::test]
async fn answers_of_other_servers_are_recognised() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (remote, _) = start_answering(answer).await;
        let acquired = remote.acquire(acquire()).await;
        let is_explained =
            matches!(&acquired, Err(Error::Denied(why)) if why.contains("check the URL"));
        assert!(is_explained, "{answer}: {acquired:?}");
        let shown = remote.show(&job()).await;
        assert!(
            matches!(shown, Err(Error::Denied(_))),
            "{answer}: {shown:?}"
        );
        let listed = remote.list(ListRequest::default()).await;
        assert!(
            matches!(listed, Err(Error::Denied(_))),
            "{answer}: {listed:?}"
        );
    }
    for answer in [
        "220 mail.example ESMTP\r\n",
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"fence\"",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad",
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    ] {
        let (remote, _) = start_answering(answer).await;
        let updated = remote.update(update(1, false)).await;
        assert!(
            matches!(updated, Err(Error::Indeterminate(_))),
            "{answer}: {updated:?}"
        );
    }
}

#[tokio::test]
async fn client_reconnects_to_a_restarted_service() {
    let mut first = Server::start().await;
    let second = Server::start().await;
    // The port of the service, or 0 while it is down.
    let port = Arc::new(AtomicU16::new(first.address.port()));
    let current = port.clone();
    let (remote, _) = listen(move |near, _| {
        let port = current.load(Ordering::SeqCst);
        async move {
            if let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await {
                relay(near, far, Arc::default()).await;
            }
        }
    })
    .await;
    remote.acquire(acquire()).await.unwrap();
    first.stop().await;
    port.store(0, Ordering::SeqCst);
    let down = remote.acquire(acquire()).await;
    assert!(matches!(down, Err(Error::Indeterminate(_))), "{down:?}");
    port.store(second.address.port(), Ordering::SeqCst);
    remote.acquire(acquire()).await.unwrap();
}

#[test]
fn invalid_urls_are_refused() {
    for bad in ["ftp://a", "http://", "http://a:b", "http://u:p@a"] {
        let refused = Remote::connect(bad).map(drop);
        assert!(
            matches!(refused, Err(Error::Invalid(_))),
            "{bad}: {refused:?}"
        );
    }
}
