//! Serves HTTP/1.1 on one connection.
//!
//! | file | what it does |
//! |---|---|
//! | `fast_path.rs` | answers plain requests without hyper |
//! | `head.rs` | parses the head of a plain request in place |
//! | `hyper_path.rs` | serves a connection with hyper from the first other request on |
//! | `hyper_stream.rs` | the stream below hyper, which gives hyper's own error answers a body |
//! | `read_ahead.rs` | notices that a caller hangs up |
//! | `write_timeout.rs` | closes connections whose client does not read |

mod fast_path;
mod head;
mod hyper_path;
mod hyper_stream;
mod read_ahead;
mod write_timeout;

pub(crate) use head::{FRAGMENT, NO_HEADERS};
pub(crate) use write_timeout::is_timeout;

use std::pin::pin;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::serve::Client;
use fast_path::{FastPath, Next};
use write_timeout::WriteTimeout;

/// The maximum size of a plain request, and of hyper's read and write buffers.
const MAX_BUFFER: usize = 64 * 1024;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves a connection to its end.
pub(crate) async fn serve<S>(client: Client, stream: S) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timeout = client.service.config.write_timeout;
    let (slot, answers) = (client.connection.slot(), &client.service.answers);
    let mut stream = WriteTimeout::new(stream, timeout, slot.clone(), answers.clone());
    let closing = client.closing.clone();
    let mut notified = pin!(closing.notified());
    let next = FastPath::new(&client, &mut stream, notified.as_mut())
        .run()
        .await?;
    match next {
        Next::Close => {
            // The client may have disconnected already.
            let _ = stream.shutdown().await;
            Ok(())
        }
        Next::Hyper(unread) => {
            // Boxed to keep this future small: most connections never use hyper.
            Box::pin(hyper_path::serve(client, stream, unread, notified)).await
        }
    }
}
