//! Programs whose messages differ do not work together, and say which versions they have.

mod agents;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agents::{agent, words};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

const LIMIT: Duration = Duration::from_secs(60);

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A caller with the keys of the cluster that writes its own messages.
struct Stranger {
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    dir: std::path::PathBuf,
}

impl Stranger {
    fn new(keys: &Path) -> Self {
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

    async fn call(&self, address: &str) -> TlsStream<TcpStream> {
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

    async fn answer(&self, stream: TcpStream) -> TlsStream<TcpStream> {
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

async fn say(line: &mut TlsStream<TcpStream>, message: &Value) {
    let bytes = serde_json::to_vec(message).expect("JSON");
    line.write_u32_le(u32::try_from(bytes.len()).expect("short")).await.expect("said");
    line.write_all(&bytes).await.expect("said");
    line.flush().await.expect("said");
}

async fn hear(line: &mut TlsStream<TcpStream>) -> Value {
    let len = line.read_u32_le().await.expect("an answer");
    let mut bytes = vec![0; len as usize];
    line.read_exact(&mut bytes).await.expect("an answer");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Both versions of the messages are named, and what to do.
fn names_both(text: &str, here: u64, there: u64) {
    for word in [
        format!("(messages {here},"),
        format!("(messages {there},"),
        "install the same version on all nodes".to_owned(),
    ] {
        assert!(text.contains(&word), "{word} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_with_other_messages_refuse_each_other_and_name_both_versions() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let keys = path("keys");
    assert!(program(&["keys", &keys]).output().expect("keys").status.success());
    let stranger = Stranger::new(Path::new(&keys));

    // A program with the next version of the messages calls an agent; what that speaks is learnt with a good hello.
    let (_agent, address) = agent(&keys, &path("agent"), |_| {});
    let calling = async {
        let hello = |protocol: u64| json!({ "protocol": protocol, "version": env!("CARGO_PKG_VERSION"), "schema": 1 });
        let mut line = stranger.call(&address).await;
        say(&mut line, &hello(0)).await;
        let why = hear(&mut line).await["Refused"].as_str().expect("refused").to_owned();
        let ours = why.split("(messages ").nth(1).and_then(|rest| rest.split(',').next());
        let ours: u64 = ours.and_then(|word| word.parse().ok()).expect("a version");
        let mut line = stranger.call(&address).await;
        say(&mut line, &hello(ours + 1)).await;
        let why = hear(&mut line).await["Refused"].as_str().expect("refused").to_owned();
        assert!(why.starts_with("at the agent: "), "{why}");
        names_both(&why, ours, ours + 1);
        ours
    };
    let ours = tokio::time::timeout(LIMIT, calling).await;
    let ours = ours.unwrap_or_else(|late| panic!("{late}: {}", words(&path("agent"))));

    // A console calls an agent with the next version.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let text = format!(
        "schema = 1\nname = 'x'\nduration = '1s'\n[nodes]\na = {{ address = '{address}' }}\n\
         [[flow]]\nfrom = 'a'\nto = 'a'\nrate = '100pps'\n"
    );
    fs::write(path("x.toml"), text).expect("written");
    let (file, out) = (path("x.toml"), path("out"));
    let run = program(&["run", &file, "--keys", &keys, "--out", &out])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let run = run.expect("a console");
    let answering = async {
        let (stream, _) = listener.accept().await.expect("a call");
        let mut line = stranger.answer(stream).await;
        assert_eq!(hear(&mut line).await["protocol"], ours);
        let hello =
            json!({ "protocol": ours + 1, "version": env!("CARGO_PKG_VERSION"), "schema": 1 });
        say(&mut line, &json!({ "Welcome": { "hello": hello, "host": "there", "boot_id": "b" } }))
            .await;
        // It hangs up.
        drop(line.read_u8().await);
    };
    tokio::time::timeout(LIMIT, answering).await.expect("in time");
    let ended = tokio::task::spawn_blocking(move || run.wait_with_output().expect("its end"));
    let Output { status, stderr, .. } = ended.await.expect("no panic");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(3), "{err}");
    names_both(&err, ours, ours + 1);
    assert!(err.contains("comparing versions"), "{err}");
}
