//! TLS, by rustls.

use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

use crate::{Error, Result};

/// Files: whom to trust, other than those whom the system trusts, and who we are.
#[derive(Default)]
pub(super) struct Files {
    pub(super) authorities: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

impl Files {
    /// What of them is used, `wanted` saying whether there is TLS.
    pub(super) fn of(self, wanted: bool) -> Result<Option<Self>> {
        let any = [&self.authorities, &self.certificate, &self.key];
        if !wanted && any.iter().any(|file| file.is_some()) {
            return Err(Error::invalid(
                "`ca`, `cert` and `key` in the store URL go with `rediss://`",
            ));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err(Error::invalid(
                "`cert` and `key` in the store URL go together",
            ));
        }
        Ok(wanted.then_some(self))
    }

    /// A client that uses them.
    pub(super) fn client(&self, server: ConnectionInfo) -> Result<Client> {
        // The driver asks for the process's own choice, and there are two to choose from where other stores are built in.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client_tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: read(certificate)?,
                client_key: read(key)?,
            }),
            _ => None,
        };
        let files = TlsCertificates {
            client_tls,
            root_cert: self.authorities.as_deref().map(read).transpose()?,
        };
        Client::build_with_tls(server, files).map_err(|error| {
            Error::Denied(format!(
                "`ca`, `cert` or `key` of the store URL is no file of PEM: {error}"
            ))
        })
    }
}

fn read(file: &str) -> Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::Denied(format!("cannot read `{file}`: {error}")))
}
