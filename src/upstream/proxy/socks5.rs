//! A tunnel through a SOCKS5 proxy (RFC 1928), with a user name and password (RFC 1929) or without.
//!
//! The proxy resolves the host's name, as with client-go.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::seams::Connection;

/// Requests the tunnel. The error is a message that continues "the proxy ...".
pub(super) async fn handshake(
    mut connection: Box<dyn Connection>,
    host: &str,
    port: u16,
    credentials: Option<(&str, &str)>,
) -> Result<Box<dyn Connection>, String> {
    authenticate(&mut connection, credentials).await?;
    let mut request = vec![VERSION, CONNECT, RESERVED];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(ADDRESS_V4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(ADDRESS_V6);
            request.extend(address.octets());
        }
        Err(_) => {
            request.push(ADDRESS_NAME);
            push_text(&mut request, host)?;
        }
    }
    request.extend(port.to_be_bytes());
    connection.write_all(&request).await.map_err(broken)?;
    let [_, reply, _, address_kind] = read(&mut connection).await?;
    if reply != SUCCEEDED {
        return Err(format!("refuses to connect to {host}: {}", reply_text(reply)));
    }
    // The proxy's own address and port, which nobody needs.
    let length = match address_kind {
        ADDRESS_V4 => 4,
        ADDRESS_V6 => 16,
        ADDRESS_NAME => usize::from(read::<1>(&mut connection).await?[0]),
        _ => return Err("does not speak SOCKS5".to_owned()),
    };
    let mut rest = vec![0; length + 2];
    connection.read_exact(&mut rest).await.map_err(broken)?;
    Ok(connection)
}

async fn authenticate(
    connection: &mut Box<dyn Connection>,
    credentials: Option<(&str, &str)>,
) -> Result<(), String> {
    let offer: &[u8] = match credentials {
        None => &[VERSION, 1, WITHOUT_AUTHENTICATION],
        Some(_) => &[VERSION, 2, WITHOUT_AUTHENTICATION, USER_AND_PASSWORD],
    };
    connection.write_all(offer).await.map_err(broken)?;
    let [version, method] = read(connection).await?;
    if version != VERSION {
        return Err("does not speak SOCKS5".to_owned());
    }
    match (method, credentials) {
        (WITHOUT_AUTHENTICATION, _) => Ok(()),
        (USER_AND_PASSWORD, Some((user, password))) => {
            let mut request = vec![USER_AND_PASSWORD_VERSION];
            push_text(&mut request, user)?;
            push_text(&mut request, password)?;
            connection.write_all(&request).await.map_err(broken)?;
            match read(connection).await? {
                [_, SUCCEEDED] => Ok(()),
                [_, _] => Err("refuses the user name and password of its URL".to_owned()),
            }
        }
        _ => Err("requires an authentication that its URL does not have".to_owned()),
    }
}

/// Adds a text with its length in front.
fn push_text(request: &mut Vec<u8>, text: &str) -> Result<(), String> {
    let length = u8::try_from(text.len()).map_err(|_| "cannot be sent a name this long")?;
    request.push(length);
    request.extend(text.as_bytes());
    Ok(())
}

async fn read<const N: usize>(connection: &mut Box<dyn Connection>) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    connection.read_exact(&mut bytes).await.map_err(broken)?;
    Ok(bytes)
}

fn broken(error: io::Error) -> String {
    format!("does not answer: {error}")
}

fn reply_text(reply: u8) -> String {
    let text = match reply {
        2 => "its rules do not allow it",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "the connection was refused",
        6 => "the time to live expired",
        7 => "it does not support CONNECT",
        8 => "it does not support this kind of address",
        _ => return format!("reply {reply}"),
    };
    text.to_owned()
}

const VERSION: u8 = 5;
const USER_AND_PASSWORD_VERSION: u8 = 1;
const WITHOUT_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const RESERVED: u8 = 0;
const ADDRESS_V4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_V6: u8 = 4;
const SUCCEEDED: u8 = 0;
