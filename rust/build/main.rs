//! Generates krust's messages: reads `rust/schema/*.txt`, one API a file, and `records/*.txt`, one
//! record's key or value a file, and writes one Rust file that `rust/src/protocol/mod.rs` includes.
//! `schema` parses and checks the files (the language is described there), `emit` turns what it
//! parsed into Rust. A mistake in a schema stops the build with the file and the line.

mod emit;
mod schema;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

const SCHEMA_DIR: &str = "rust/schema";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SCHEMA_DIR}");
    println!("cargo::rerun-if-changed=rust/build");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let apis = schema::load(&root.join(SCHEMA_DIR))?;
    let records = schema::load_records(&root.join(SCHEMA_DIR))?;
    let target = Path::new(&env::var("OUT_DIR")?).join("protocol.rs");
    fs::write(target, emit::protocol(&apis, &records)?)?;
    Ok(())
}
