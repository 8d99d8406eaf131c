//! A request of our own, on zeros, that goes the way of any other, leaves the reserve alone and is counted nowhere.

use super::app::App;
use super::infer::{HEADER_LENGTH, answer};
use crate::repository::Served;
use axum::body::Body;
use plimsoll_engine::lane::Want;
use plimsoll_engine::program::Program;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks a model for the shapes of one of its programs; how long the run took, unless the model refuses zeros.
pub(crate) async fn rehearse(app: &App, served: &Arc<Served>, program: &Program) -> Option<Duration> {
    let mut data = vec![];
    let inputs = served.signature().inputs.iter().zip(program.shapes()).map(|(port, shape)| {
        let bytes = shape.iter().product::<usize>().checked_mul(port.dtype.size_bytes()?)?;
        data.resize(data.len() + bytes, 0);
        let parameters = json!({ "binary_data_size": bytes });
        Some(json!({
            "name": port.name, "datatype": port.dtype.name(), "shape": shape.as_slice(), "parameters": parameters
        }))
    });
    let inputs = inputs.collect::<Option<Vec<_>>>()?;
    let header = json!({ "inputs": inputs, "parameters": { "binary_data_output": true } }).to_string();
    let request = http::Request::post("/").header(&HEADER_LENGTH, header.len());
    let (parts, body) = request.body(Body::from([header.as_bytes(), &data].concat())).ok()?.into_parts();
    let answered = answer(app, served, &parts, body, Instant::now(), Want::Steady).await.ok()?;
    Some(answered.spent.compute)
}
