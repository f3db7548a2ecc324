//! The lock service of etcd, over gRPC: all callers share one HTTP/2 connection, as its client libraries do.

use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;

use crate::sample::{NAMES, Sample, latencies, lock_name};
use crate::{Result, fail};

/// A connection, and the etcd lease that its locks are attached to.
#[derive(Clone)]
pub(crate) struct Etcd {
    requests: SendRequest<Bytes>,
    authority: String,
    lease: u64,
}

impl Etcd {
    /// Connects, and obtains a lease of a minute.
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let authority = format!("127.0.0.1:{port}");
        let stream = TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 24);
        let (requests, connection) = builder.handshake(stream).await?;
        tokio::spawn(connection);
        let mut etcd = Self {
            requests,
            authority,
            lease: 0,
        };
        etcd.lease = etcd.grant(60).await?;
        Ok(etcd)
    }

    /// Returns another contender on the same connection, with a lease of its own.
    pub(crate) async fn contender(&self) -> Result<Self> {
        let mut contender = self.clone();
        contender.lease = self.grant(60).await?;
        Ok(contender)
    }

    /// Obtains a lease for these seconds.
    async fn grant(&self, seconds: u64) -> Result<u64> {
        let mut request = Vec::new();
        put_number(&mut request, 1, seconds);
        let answer = self
            .call("/etcdserverpb.Lease/LeaseGrant", &request)
            .await?;
        field(&answer, 2)
            .and_then(|field| field.number())
            .ok_or_else(|| "etcd granted no lease".into())
    }

    /// Waits for a lock and acquires it; returns its key.
    pub(crate) async fn lock(&self, name: &str) -> Result<Vec<u8>> {
        let mut request = Vec::new();
        put_bytes(&mut request, 1, name.as_bytes());
        put_number(&mut request, 2, self.lease);
        let answer = self.call("/v3lockpb.Lock/Lock", &request).await?;
        match field(&answer, 2) {
            Some(Field::Bytes(key)) => Ok(key.to_vec()),
            _ => fail("etcd returned no key for the lock"),
        }
    }

    pub(crate) async fn unlock(&self, key: &[u8]) -> Result<()> {
        let mut request = Vec::new();
        put_bytes(&mut request, 1, key);
        self.call("/v3lockpb.Lock/Unlock", &request).await?;
        Ok(())
    }

    async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>> {
        let request = http::Request::post(format!("http://{}{path}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut framed = BytesMut::with_capacity(message.len() + 5);
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len())?);
        framed.extend_from_slice(message);
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut body) = requests.send_request(request, false)?;
        body.send_data(framed.freeze(), true)?;
        let mut stream = response.await?.into_body();
        let mut answer = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            answer.extend_from_slice(&data);
        }
        let trailers = stream.trailers().await?.unwrap_or_default();
        if trailers
            .get("grpc-status")
            .is_some_and(|status| status != "0")
            || answer.len() < 5
        {
            return fail(&format!("etcd refused the call: {trailers:?}"));
        }
        Ok(answer.split_off(5))
    }
}

/// Measures lock cycles of concurrent callers.
pub(crate) async fn cycles(port: u16, callers: usize, measured: Duration) -> Result<Sample> {
    let etcd = Etcd::connect(port).await?;
    let begin = Instant::now() + Duration::from_millis(300);
    let end = begin + measured;
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let etcd = etcd.clone();
            tokio::spawn(async move { cycle_until(&etcd, number, callers, begin, end).await })
        })
        .collect();
    let mut histogram = latencies()?;
    for task in tasks {
        histogram.add(task.await??)?;
    }
    Ok(Sample::new(measured, histogram))
}

async fn cycle_until(
    etcd: &Etcd,
    number: usize,
    callers: usize,
    begin: Instant,
    end: Instant,
) -> Result<Histogram<u64>> {
    let mut histogram = latencies()?;
    for turn in 0.. {
        let name = lock_name((number + turn * callers) % NAMES);
        let started = Instant::now();
        let key = etcd.lock(&name).await?;
        etcd.unlock(&key).await?;
        let now = Instant::now();
        if now >= end {
            break;
        }
        if now >= begin {
            histogram.saturating_record(u64::try_from((now - started).as_nanos())?);
        }
    }
    Ok(histogram)
}

/// The value of a field of a protocol buffer.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Field<'_> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }
}

/// Returns the field with this number.
fn field(mut message: &[u8], number: u64) -> Option<Field<'_>> {
    loop {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Field::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let bytes = message.get(..length)?;
                message = &message[length..];
                Field::Bytes(bytes)
            }
            _ => return None,
        };
        if key >> 3 == number {
            return Some(value);
        }
    }
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
