//! Asks a server how it is: the four-letter word `zool`.

use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take, from the dialling to the last byte.
const PATIENCE: Duration = Duration::from_secs(3);

/// More than any server has to say.
const BYTES_MAX: u64 = 1 << 20;

/// What a server at `host:port` says of itself; otherwise why it says nothing, in one line.
pub(in crate::cli) async fn ask(server: &str) -> Result<Value, String> {
    let text = match timeout(PATIENCE, exchange(server)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer in {} s", PATIENCE.as_secs())),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(fields)) => Ok(Value::Object(fields)),
        _ if text.contains("not in the whitelist") => {
            Err("tells this to its own machine only: ask there, or allow the four-letter word zool".to_owned())
        }
        _ => Err("answers, but is no zoolet server".to_owned()),
    }
}

async fn exchange(server: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(b"zool").await?;
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
