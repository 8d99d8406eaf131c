mod constant;
mod found;
mod scan;
mod settings;
