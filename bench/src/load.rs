//! The load generator: one thread, any number of connections, each with one outstanding request.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::sample::{self, NAMES, Sample, lock_name};
use crate::{Result, fail};

/// How long to run before answers are measured.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long to wait for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol of a lock server on one connection.
pub(crate) trait Protocol {
    /// Prepares a connection for the first request.
    fn connect(&mut self, stream: &mut TcpStream) -> io::Result<()>;
    /// Writes a request for a lock with a fencing token.
    fn acquire(&mut self, name: &str, out: &mut Vec<u8>);
    /// Writes a release of the lock that was acquired last.
    fn release(&mut self, name: &str, out: &mut Vec<u8>);
    /// Returns the length of the first answer if it is complete; fails if it is not a success.
    fn answer(&mut self, input: &[u8]) -> io::Result<Option<usize>>;
}

/// Measures lock cycles. No two connections use the same name, so there is no contention.
pub(crate) fn cycles<P: Protocol>(
    address: SocketAddr,
    connections: usize,
    measured: Duration,
    protocol: impl Fn() -> P,
) -> Result<Sample> {
    let mut poll = Poll::new()?;
    let mut open = Vec::new();
    for number in 0..connections {
        let mut connection = Connection::open(address, number, connections, protocol())?;
        let token = Token(number);
        let registry = poll.registry();
        registry.register(&mut connection.stream, token, Interest::READABLE)?;
        connection.start()?;
        open.push(connection);
    }
    let mut events = Events::with_capacity(1024);
    let mut latencies = sample::latencies()?;
    let begin = Instant::now() + WARM_UP;
    let end = begin + measured;
    // Every connection completes its last cycle, so that no lock is held when the next round begins.
    let mut busy = connections;
    while busy > 0 {
        poll.poll(&mut events, Some(TIMEOUT))?;
        if events.is_empty() {
            return fail("the server did not answer for 10 s");
        }
        for event in &events {
            let connection = &mut open[event.token().0];
            let Some(latency) = connection.advance()? else {
                continue;
            };
            let now = Instant::now();
            if now > begin && now <= end {
                latencies.saturating_record(u64::try_from(latency.as_nanos())?);
            }
            if now < end {
                connection.start()?;
            } else {
                busy -= 1;
            }
        }
    }
    Ok(Sample::new(measured, latencies))
}

/// Acquires this number of locks, and does not release them.
pub(crate) fn hold<P: Protocol>(
    address: SocketAddr,
    locks: usize,
    protocol: impl Fn() -> P,
) -> Result<()> {
    const CONNECTIONS: usize = 64;
    let mut streams = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            let mut protocol = protocol();
            protocol.connect(&mut stream)?;
            Ok((stream, protocol))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let (mut output, mut input) = (Vec::new(), vec![0; 4096]);
    for start in (0..locks).step_by(CONNECTIONS) {
        let round = start..locks.min(start + CONNECTIONS);
        for (number, (stream, protocol)) in round.clone().zip(&mut streams) {
            protocol.acquire(&lock_name(number), &mut output);
            stream.write_all(&output)?;
            output.clear();
        }
        for (_, (stream, protocol)) in round.zip(&mut streams) {
            let mut filled = 0;
            while protocol.answer(&input[..filled])?.is_none() {
                match stream.read(&mut input[filled..])? {
                    0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    read => filled += read,
                }
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Step {
    Acquiring,
    Releasing,
}

struct Connection<P> {
    stream: mio::net::TcpStream,
    protocol: P,
    step: Step,
    /// The number of the next name.
    next: usize,
    /// The distance to the name after that: the number of connections.
    stride: usize,
    name: String,
    started: Instant,
    output: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
}

impl<P: Protocol> Connection<P> {
    fn open(address: SocketAddr, number: usize, stride: usize, mut protocol: P) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        protocol.connect(&mut stream)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: mio::net::TcpStream::from_std(stream),
            protocol,
            step: Step::Releasing,
            next: number,
            stride,
            name: String::new(),
            started: Instant::now(),
            output: Vec::new(),
            input: vec![0; 4096],
            filled: 0,
        })
    }

    /// Begins a cycle.
    fn start(&mut self) -> io::Result<()> {
        self.name = lock_name(self.next % NAMES);
        self.next += self.stride;
        self.step = Step::Acquiring;
        self.started = Instant::now();
        self.protocol.acquire(&self.name, &mut self.output);
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        // A request is much smaller than the empty buffer of the socket, so one call writes all of it.
        let sent = self.stream.write(&self.output)?;
        assert_eq!(sent, self.output.len(), "requests are small");
        self.output.clear();
        Ok(())
    }

    /// Reads from the socket. Returns the latency of the cycle if it is complete.
    fn advance(&mut self) -> io::Result<Option<Duration>> {
        loop {
            let room = &mut self.input[self.filled..];
            let (room, read) = (room.len(), self.stream.read(room));
            let read = match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            self.filled += read;
            let answered = self.protocol.answer(&self.input[..self.filled])?;
            if let Some(length) = answered {
                assert_eq!(length, self.filled, "one answer for one request");
                self.filled = 0;
                return self.next_step();
            }
            if read < room {
                return Ok(None);
            }
            self.input.resize(2 * self.input.len(), 0);
        }
    }

    /// Continues after an answer.
    fn next_step(&mut self) -> io::Result<Option<Duration>> {
        match self.step {
            Step::Acquiring => {
                self.step = Step::Releasing;
                self.protocol.release(&self.name, &mut self.output);
                self.send()?;
                Ok(None)
            }
            Step::Releasing => Ok(Some(self.started.elapsed())),
        }
    }
}
