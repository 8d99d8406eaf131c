//! The folder of models: what is there, in which versions, with which settings.
