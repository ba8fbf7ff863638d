//! Arguments and exit codes of the programs that measure ensembles.

use crate::Outcome;
use crate::product::Product;
use std::process::ExitCode;

/// Reads numbers above 0 after their options, and the names of products.
///
/// Without a name it returns all products.
///
/// # Errors
/// If a product is unknown, or an option has no such number.
pub fn products(numbers: &mut [(&str, &mut u64)]) -> Outcome<Vec<Product>> {
    let mut products = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let Some((_, place)) = numbers.iter_mut().find(|(option, _)| *option == argument) else {
            products.push(Product::named(&argument)?);
            continue;
        };
        let number = arguments.next().and_then(|value| value.parse().ok()).filter(|number| *number > 0);
        **place = number.ok_or_else(|| format!("{argument} needs a number"))?;
    }
    if products.is_empty() {
        return ["zoolet", "zookeeper", "etcd"].map(Product::named).into_iter().collect();
    }
    Ok(products)
}

/// Prints why a measurement failed; returns the exit code.
#[allow(clippy::print_stdout, reason = "for programs that report to people")]
pub fn exit_code(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("{what}");
            ExitCode::FAILURE
        }
    }
}
