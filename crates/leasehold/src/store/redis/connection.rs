//! One connection that all calls share, replaced when it breaks.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::sync::Mutex;

use super::failure;
use super::server::Server;
use crate::{Error, Result};

/// A script and its hash, by which the server knows it.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        let hash = redis::Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Returns a command that calls the script by its hash.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(keys);
        command
    }
}

/// The failure of a call.
pub(super) enum CallFailure {
    /// Nothing was sent, or the server refused the call.
    Unambiguous(Error),
    /// The call was sent, and its outcome is unknown.
    Ambiguous(Error),
}

impl From<CallFailure> for Error {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Unambiguous(error) | CallFailure::Ambiguous(error) => error,
        }
    }
}

pub(super) struct Connection {
    server: Server,
    current: Mutex<Current>,
}

/// The current connection, and the number of connections so far.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    number: u64,
}

impl Connection {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            current: Mutex::default(),
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    async fn get(&self) -> Result<(MultiplexedConnection, u64)> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.number));
        }
        let connection = self.server.connect().await;
        let connection =
            connection.map_err(|error| failure::while_connecting(self.server.address(), &error))?;
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    /// Makes the next call reconnect, unless another call has done so already.
    async fn forget(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
        }
    }

    /// Sends commands in one round trip. Each has its own answer or error.
    async fn send(&self, commands: &mut Pipeline) -> Result<Vec<Value>, CallFailure> {
        let (mut connection, number) = self.get().await.map_err(CallFailure::Unambiguous)?;
        commands.ignore_errors();
        let answers = commands.query_async::<Vec<Value>>(&mut connection).await;
        match answers {
            // If the host name leads to the primary, a new connection finds the new primary.
            Ok(answers) if answers.iter().any(is_read_only) => {
                self.forget(number).await;
                Err(CallFailure::Unambiguous(failure::demoted()))
            }
            Ok(answers) => Ok(answers),
            Err(error) => {
                self.forget(number).await;
                Err(classify(&error))
            }
        }
    }

    /// Sends commands that change nothing, so that every failure is unambiguous.
    pub(super) async fn read(&self, mut commands: Pipeline) -> Result<Vec<Value>> {
        let answers = self.send(&mut commands).await.map_err(unambiguous)?;
        answers
            .into_iter()
            .map(|answer| {
                answer
                    .extract_error()
                    .map_err(|error| failure::unambiguous(&error))
            })
            .collect()
    }

    /// Calls a script, followed by another command in the same round trip. Loads the script if the server does not
    /// know it.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: Cmd,
        then: Option<Cmd>,
    ) -> Result<Vec<Value>, CallFailure> {
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
                return Err(classify(&error));
            }
            self.load(script).await?;
        }
        let why = "Redis does not keep the script that was loaded";
        Err(CallFailure::Unambiguous(Error::Unavailable(why.into())))
    }

    /// Loads a script, which writes no data.
    async fn load(&self, script: &Script) -> Result<(), CallFailure> {
        let mut commands = Pipeline::new();
        commands.cmd("SCRIPT").arg("LOAD").arg(script.text);
        self.read(commands)
            .await
            .map(drop)
            .map_err(CallFailure::Unambiguous)
    }
}

fn is_read_only(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => failure::is_read_only(&RedisError::from(error.clone())),
        _ => false,
    }
}

const NO_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);

fn classify(error: &RedisError) -> CallFailure {
    match failure::of_write(error) {
        unknown @ Error::Indeterminate(_) => CallFailure::Ambiguous(unknown),
        unambiguous => CallFailure::Unambiguous(unambiguous),
    }
}

/// Converts the failure of a call that changes nothing.
pub(super) fn unambiguous(failure: CallFailure) -> Error {
    match failure {
        CallFailure::Ambiguous(Error::Indeterminate(why)) => Error::Unavailable(why),
        other => other.into(),
    }
}
