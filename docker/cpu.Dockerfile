# syntax=docker/dockerfile:1
# Plimsoll on a CPU: the binary, the C library and certificates, nothing else. README.md beside this file says how to
# build and run it.

ARG RUST=1.95.0

FROM rust:${RUST}-slim-bookworm AS build
WORKDIR /plimsoll
# Dependencies are a layer of their own, made from the manifests and empty sources: they are most of the build.
COPY Cargo.toml Cargo.lock ./
COPY engine/Cargo.toml engine/
COPY server/Cargo.toml server/
COPY tests/loom/Cargo.toml tests/loom/
RUN mkdir engine/src server/src tests/loom/src \
    && touch engine/src/lib.rs tests/loom/src/lib.rs \
    && echo 'fn main() {}' >server/src/main.rs \
    && cargo build --release --locked
COPY engine/src engine/src
COPY server/src server/src
COPY docker/sbom docker/
# Cargo goes by the time of a file, and the sources may be older than what was made of the empty ones.
RUN touch engine/src/lib.rs server/src/main.rs \
    && cargo build --release --locked \
    && strip target/release/plimsoll \
    && docker/sbom target/release/plimsoll >target/sbom.json

FROM debian:bookworm-slim AS tree
COPY docker/tree /usr/local/bin/
RUN apt-get update && tree /tree && mkdir /cache && rm -rf /var/lib/apt/lists/*

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Plimsoll" \
    org.opencontainers.image.description="An edge inference server with a load line, on a CPU" \
    org.opencontainers.image.source="https://github.com/plimsoll-server/plimsoll" \
    org.opencontainers.image.licenses="MIT OR Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=tree /tree /
# A volume takes its owner from here.
COPY --from=tree --chown=65532:65532 /cache /cache
COPY --from=build /plimsoll/target/release/plimsoll /usr/bin/
COPY LICENSE-* /usr/share/doc/plimsoll/
COPY --from=build /plimsoll/target/sbom.json /usr/share/doc/plimsoll/
COPY config /etc/plimsoll
COPY config/cpu.toml /etc/plimsoll/plimsoll.toml
COPY models /models
# What holds for every container, whichever profile it runs with; the environment wins over the file.
ENV PLIMSOLL_CONFIG=/etc/plimsoll/plimsoll.toml \
    PLIMSOLL_SERVER__LISTEN=0.0.0.0:8000 \
    PLIMSOLL_MODELS__PATH=/models \
    PLIMSOLL_CACHE__DIR=/cache
USER 65532:65532
# The image's own C library must do for the binary.
RUN ["/usr/bin/plimsoll", "--version"]
VOLUME ["/models", "/cache"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/bin/plimsoll", "health"]
ENTRYPOINT ["/usr/bin/plimsoll"]
CMD ["serve"]
