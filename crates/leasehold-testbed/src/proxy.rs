//! A proxy between a client and a server, which interrupts the network and counts traffic.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::ports::Port;

/// Forwards a port on loopback to another one. Works from any runtime, and ends when it is dropped.
pub struct Proxy {
    port: Port,
    state: watch::Sender<State>,
    counters: Arc<Counters>,
}

/// The traffic through a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of connections.
    pub connections: u64,
    /// How often a client sent something after it had received an answer, or for the first time: the round trips, if
    /// it sends one request at a time on a connection. If it sends a request in several parts, [delay](Proxy::delay) the
    /// answers, so that none passes between two parts.
    pub round_trips: u64,
    /// The number of bytes to the server.
    pub sent: u64,
    /// The number of bytes from the server.
    pub received: u64,
}

#[derive(Clone, Copy)]
struct State {
    mode: Mode,
    delay: Duration,
    /// Connections of an earlier generation are cut.
    generation: u64,
    /// Connections up to this number are cut when their client next sends something.
    stale: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Forward,
    StallAnswers,
    Blackhole,
    Refuse,
}

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Mode {
    fn forwards(self, direction: Direction) -> bool {
        match self {
            Self::Forward => true,
            Self::StallAnswers => direction == Direction::ToServer,
            Self::Blackhole | Self::Refuse => false,
        }
    }
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    round_trips: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Proxy {
    /// Starts a proxy to this port on loopback.
    pub async fn to(target: u16) -> Self {
        let port = Port::free();
        let (state, receiver) = watch::channel(State {
            mode: Mode::Forward,
            delay: Duration::ZERO,
            generation: 0,
            stale: 0,
        });
        let counters = Arc::<Counters>::default();
        let (ready, opened) = oneshot::channel();
        let listener = Listener {
            port: port.number(),
            target,
            state: receiver,
            counters: counters.clone(),
        };
        // A separate thread, because a test's runtime may be paused, busy or gone while others use the proxy.
        std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the proxy")
                .block_on(listener.serve(ready));
        });
        opened.await.expect("the proxy's port is free");
        Self {
            port,
            state,
            counters,
        }
    }

    /// Returns the proxy's port on loopback.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Stops forwarding in both directions. Connections stay open, and new ones are accepted but not forwarded.
    pub fn blackhole(&self) {
        self.state.send_modify(|state| state.mode = Mode::Blackhole);
    }

    /// Holds back the server's answers, while requests are still forwarded: writes land, but unanswered.
    pub fn stall_answers(&self) {
        self.state
            .send_modify(|state| state.mode = Mode::StallAnswers);
    }

    /// Cuts all connections and refuses new ones.
    pub fn refuse(&self) {
        self.state.send_modify(|state| {
            state.mode = Mode::Refuse;
            state.generation += 1;
        });
    }

    /// Cuts all current connections. New ones are accepted.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Cuts each current connection when its client next sends something, like a server that has just closed an idle
    /// one. New connections are accepted.
    pub fn cut_on_next_use(&self) {
        let stale = self.traffic().connections;
        self.state.send_modify(|state| state.stale = stale);
    }

    /// Delays everything by this much in each direction.
    pub fn delay(&self, each_way: Duration) {
        self.state.send_modify(|state| state.delay = each_way);
    }

    /// Resumes forwarding immediately. Bytes that were held back arrive.
    pub fn forward(&self) {
        self.state.send_modify(|state| {
            state.mode = Mode::Forward;
            state.delay = Duration::ZERO;
        });
    }

    /// Returns the traffic so far.
    pub fn traffic(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Traffic {
            connections: load(&self.counters.connections),
            round_trips: load(&self.counters.round_trips),
            sent: load(&self.counters.sent),
            received: load(&self.counters.received),
        }
    }
}

/// The listening side.
#[derive(Clone)]
struct Listener {
    port: u16,
    target: u16,
    state: watch::Receiver<State>,
    counters: Arc<Counters>,
}

impl Listener {
    async fn serve(self, ready: oneshot::Sender<()>) {
        let mut ready = Some(ready);
        loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
                .await
                .expect("the proxy's port is reserved");
            if let Some(ready) = ready.take() {
                let _ = ready.send(());
            }
            // The listener is closed while connections are refused, and with the proxy.
            let mut state = self.state.clone();
            tokio::select! {
                () = self.accept(&listener) => {}
                _ = state.wait_for(|state| state.mode == Mode::Refuse) => {}
            }
            drop(listener);
            let resumed = state.wait_for(|state| state.mode != Mode::Refuse);
            if resumed.await.is_err() || state.has_changed().is_err() {
                return;
            }
        }
    }

    async fn accept(&self, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            let before = self.counters.connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(self.clone().relay(client, before + 1));
        }
    }

    /// Relays one connection until either end closes it or it is cut.
    async fn relay(self, client: TcpStream, number: u64) {
        let mut state = self.state.clone();
        let generation = state.borrow().generation;
        let is_cut = |state: &State| state.generation != generation || state.mode == Mode::Refuse;
        tokio::select! {
            _ = self.forward(client, number) => {}
            _ = state.wait_for(is_cut) => {}
        }
    }

    async fn forward(&self, client: TcpStream, number: u64) -> std::io::Result<()> {
        self.passable(Direction::ToServer).await?;
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let has_answer = AtomicBool::new(true);
        let begins_trip = || has_answer.swap(false, Ordering::SeqCst);
        let up = self.pump(
            Direction::ToServer,
            from_client,
            to_server,
            begins_trip,
            |bytes, begins_trip| {
                self.counters.sent.fetch_add(bytes, Ordering::SeqCst);
                self.counters
                    .round_trips
                    .fetch_add(begins_trip.into(), Ordering::SeqCst);
                match self.state.borrow().stale < number {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::ConnectionAborted.into()),
                }
            },
        );
        let begins_none = || false;
        let down = self.pump(
            Direction::ToClient,
            from_server,
            to_client,
            begins_none,
            |bytes, _| {
                self.counters.received.fetch_add(bytes, Ordering::SeqCst);
                has_answer.store(true, Ordering::SeqCst);
                Ok(())
            },
        );
        tokio::try_join!(up, down).map(drop)
    }

    async fn pump(
        &self,
        direction: Direction,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        begins_trip: impl Fn() -> bool,
        count: impl Fn(u64, bool) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer).await?;
            // Decided on arrival: an answer that passes during the delay did not cause these bytes.
            let begins_trip = begins_trip();
            let delay = self.passable(direction).await?;
            tokio::time::sleep(delay).await;
            self.passable(direction).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            count(read as u64, begins_trip)?;
            to.write_all(&buffer[..read]).await?;
        }
    }

    /// Waits until bytes may pass, and returns their delay.
    async fn passable(&self, direction: Direction) -> std::io::Result<Duration> {
        let mut state = self.state.clone();
        let state = state.wait_for(|state| state.mode.forwards(direction)).await;
        state
            .map(|state| state.delay)
            .map_err(|_| std::io::ErrorKind::ConnectionAborted.into())
    }
}
