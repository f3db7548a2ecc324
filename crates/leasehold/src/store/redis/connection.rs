//! One connection that many calls share, and that is made anew when it breaks.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::sync::Mutex;

use super::failure;
use super::server::Server;
use crate::{Error, Result};

/// A script, and the hash that names it on the server.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Calls it by its hash.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(keys);
        command
    }
}

/// What went wrong with a call.
pub(super) enum Broken {
    /// Nothing was sent, or the server refused to do it.
    Harmless(Error),
    /// It was sent, and nobody knows.
    Unknown(Error),
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Harmless(error) | Broken::Unknown(error) => error,
        }
    }
}

pub(super) struct Connection {
    server: Server,
    live: Mutex<Live>,
}

/// The connection that is in use, and how many there were before it.
#[derive(Default)]
struct Live {
    connection: Option<MultiplexedConnection>,
    number: u64,
}

impl Connection {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            live: Mutex::default(),
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    async fn get(&self) -> Result<(MultiplexedConnection, u64)> {
        let mut live = self.live.lock().await;
        if let Some(connection) = &live.connection {
            return Ok((connection.clone(), live.number));
        }
        let connection = self.server.connect().await;
        let connection =
            connection.map_err(|error| failure::connecting(self.server.address(), &error))?;
        live.number += 1;
        live.connection = Some(connection.clone());
        Ok((connection, live.number))
    }

    /// The next call makes a new connection, unless another call has done so already.
    async fn forget(&self, number: u64) {
        let mut live = self.live.lock().await;
        if live.number == number {
            live.connection = None;
        }
    }

    /// Sends commands together, in one round trip; each has an answer or an error of its own.
    async fn send(&self, commands: &mut Pipeline) -> Result<Vec<Value>, Broken> {
        let (mut connection, number) = self.get().await.map_err(Broken::Harmless)?;
        commands.ignore_errors();
        let answers = commands.query_async::<Vec<Value>>(&mut connection).await;
        match answers {
            // Behind a name that leads to the primary, a new connection finds the new one.
            Ok(answers) if answers.iter().any(is_read_only) => {
                self.forget(number).await;
                Err(Broken::Harmless(failure::demoted()))
            }
            Ok(answers) => Ok(answers),
            Err(error) => {
                self.forget(number).await;
                Err(broken(&error))
            }
        }
    }

    /// Sends what changes nothing: then nothing has happened, whatever went wrong.
    pub(super) async fn read(&self, mut commands: Pipeline) -> Result<Vec<Value>> {
        let answers = self.send(&mut commands).await.map_err(harmless)?;
        answers
            .into_iter()
            .map(|answer| {
                answer
                    .extract_error()
                    .map_err(|error| failure::harmless(&error))
            })
            .collect()
    }

    /// Calls a script, with whatever is to follow it in the same round trip; the first time on a server it is loaded
    /// there.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: Cmd,
        then: Option<Cmd>,
    ) -> Result<Vec<Value>, Broken> {
        let mut commands = Pipeline::new();
        commands.add_command(call);
        if let Some(then) = then {
            commands.add_command(then);
        }
        for _ in 0..2 {
            let answers = self.send(&mut commands).await?;
            let Some(Value::ServerError(error)) = answers.first() else {
                return Ok(answers);
            };
            let error = RedisError::from(error.clone());
            if error.kind() != NO_SCRIPT {
                return Err(broken(&error));
            }
            self.load(script).await?;
        }
        let why = "Redis forgets the script that it was given";
        Err(Broken::Harmless(Error::Unavailable(why.into())))
    }

    /// Loading writes nothing, whatever becomes of it.
    async fn load(&self, script: &Script) -> Result<(), Broken> {
        let mut commands = Pipeline::new();
        commands.cmd("SCRIPT").arg("LOAD").arg(script.text);
        self.read(commands)
            .await
            .map(drop)
            .map_err(Broken::Harmless)
    }
}

fn is_read_only(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => failure::is_read_only(&RedisError::from(error.clone())),
        _ => false,
    }
}

const NO_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);

fn broken(error: &RedisError) -> Broken {
    match failure::of_write(error) {
        unknown @ Error::Indeterminate(_) => Broken::Unknown(unknown),
        harmless => Broken::Harmless(harmless),
    }
}

/// What a failure means to whoever changed nothing.
pub(super) fn harmless(broken: Broken) -> Error {
    match broken {
        Broken::Unknown(Error::Indeterminate(why)) => Error::Unavailable(why),
        other => other.into(),
    }
}
