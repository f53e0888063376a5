//! A program of one's own with keys of a cluster: it writes its own messages.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// A caller with the keys of the cluster that writes its own messages.
pub(crate) struct Stranger {
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    dir: std::path::PathBuf,
}

impl Stranger {
    pub(crate) fn new(keys: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(keys.join("node.pem")).expect("a chain");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(keys.join("ca.pem")).expect("a root"))
            .expect("good");
        let chain = chain.collect::<Result<_, _>>().expect("a chain");
        Self { chain, roots: Arc::new(roots), dir: keys.to_owned() }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_file(self.dir.join("node.key")).expect("a key")
    }

    pub(crate) async fn call(&self, address: &str) -> TlsStream<TcpStream> {
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_client_auth_cert(self.chain.clone(), self.key())
            .expect("a certificate");
        let stream = TcpStream::connect(address).await.expect("an agent");
        let name = ServerName::try_from("itg-cluster").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("proved").into()
    }

    /// A connection on which the versions have been compared.
    pub(crate) async fn greet(&self, address: &str) -> TlsStream<TcpStream> {
        let mut line = self.call(address).await;
        say(&mut line, &hello(0)).await;
        let protocol = version(&hear(&mut line).await);
        let mut line = self.call(address).await;
        say(&mut line, &hello(protocol)).await;
        let welcome = hear(&mut line).await;
        assert!(welcome["Welcome"].is_object(), "{welcome}");
        line
    }

    /// A proof that the holder of these keys vouches for the members of a run.
    pub(crate) fn vouch(&self, run: &str, addresses: &[&str]) -> Value {
        let text = serde_json::to_vec(&("members of a run of itg-cluster", run, addresses));
        let key = crypto::ring::default_provider().key_provider.load_private_key(self.key());
        let signer = key.expect("a key").choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]);
        let signature = signer.expect("its scheme").sign(&text.expect("JSON")).expect("signed");
        let chain: Vec<&[u8]> = self.chain.iter().map(AsRef::as_ref).collect();
        json!({ "chain": chain, "signature": signature })
    }

    pub(crate) async fn answer(&self, stream: TcpStream) -> TlsStream<TcpStream> {
        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::clone(&self.roots),
            Arc::clone(&provider),
        );
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(self.chain.clone(), self.key())
            .expect("a certificate");
        TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("proved").into()
    }
}

pub(crate) async fn say(line: &mut TlsStream<TcpStream>, message: &Value) {
    let bytes = serde_json::to_vec(message).expect("JSON");
    line.write_u32_le(u32::try_from(bytes.len()).expect("short")).await.expect("said");
    line.write_all(&bytes).await.expect("said");
    line.flush().await.expect("said");
}

pub(crate) async fn hear(line: &mut TlsStream<TcpStream>) -> Value {
    let len = line.read_u32_le().await.expect("an answer");
    let mut bytes = vec![0; len as usize];
    line.read_exact(&mut bytes).await.expect("an answer");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// The first words of a program that speaks this version.
pub(crate) fn hello(protocol: u64) -> Value {
    json!({ "protocol": protocol, "version": env!("CARGO_PKG_VERSION"), "schema": 1 })
}

/// The version that an agent speaks, from its refusal of another one.
pub(crate) fn version(refusal: &Value) -> u64 {
    let why = refusal["Refused"].as_str().expect("refused");
    let ours = why.split("(messages ").nth(1).and_then(|rest| rest.split(',').next());
    ours.and_then(|word| word.parse().ok()).expect("a version")
}
