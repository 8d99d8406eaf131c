# syntax=docker/dockerfile:1
# Plimsoll on a Jetson (ARM): the binary and its kernels; no toolkit, since the driver comes with JetPack. README.md
# beside this file says how to build and run it.

# 6 is for Orin, 7 for Orin and Thor.
ARG JETPACK=6
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

# NVIDIA's run-time compiler as JetPack 6.1 and 7.0 have it, and the architectures of the devices.
FROM python:3.13-slim-bookworm AS nvrtc-6
RUN pip install --no-cache-dir --no-deps --target /nvrtc nvidia-cuda-nvrtc-cu12==12.6.85 \
    && ln -s /nvrtc/nvidia/*/lib /nvrtc/lib
ENV ARCHITECTURES="sm_87"

FROM python:3.13-slim-bookworm AS nvrtc-7
RUN pip install --no-cache-dir --no-deps --target /nvrtc nvidia-cuda-nvrtc==13.0.88 \
    && ln -s /nvrtc/nvidia/*/lib /nvrtc/lib
ENV ARCHITECTURES="sm_87 sm_110"

# hadolint ignore=DL3006 # a stage of this file
FROM nvrtc-${JETPACK} AS kernels
COPY --from=build /plimsoll/target/release/plimsoll /usr/bin/
ENV LD_LIBRARY_PATH=/nvrtc/lib
RUN mkdir /cache \
    && echo "$ARCHITECTURES" >/architectures \
    && xargs -a /architectures -n 1 -P "$(nproc)" plimsoll kernels build --out /kernels --deny-spills --arch

# The release that JetPack itself is made of: the driver's libraries come from the device and expect its C library.
FROM ubuntu:22.04 AS jetpack-6

FROM ubuntu:24.04 AS jetpack-7

# hadolint ignore=DL3006 # a stage of this file
FROM jetpack-${JETPACK}
ARG JETPACK
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Plimsoll" \
    org.opencontainers.image.description="An edge inference server with a load line, on Jetson (JetPack ${JETPACK})" \
    org.opencontainers.image.source="https://github.com/plimsoll-server/plimsoll" \
    org.opencontainers.image.licenses="MIT OR Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=kernels /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# A volume takes its owner from here.
COPY --from=kernels --chown=65532:65532 /cache /cache
COPY --from=kernels /kernels /usr/share/plimsoll/kernels
COPY --from=build /plimsoll/target/release/plimsoll /usr/bin/
COPY LICENSE-* /usr/share/doc/plimsoll/
COPY --from=build /plimsoll/target/sbom.json /usr/share/doc/plimsoll/
COPY config /etc/plimsoll
COPY config/jetson-orin-nano-8gb.toml /etc/plimsoll/plimsoll.toml
COPY models /models
# By these the container runtime brings the driver in, and the loader finds it where Jetsons have it.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu/nvidia:/usr/lib/aarch64-linux-gnu/tegra
# What holds for every container, whichever profile it runs with; the environment wins over the file.
ENV PLIMSOLL_CONFIG=/etc/plimsoll/plimsoll.toml \
    PLIMSOLL_SERVER__LISTEN=0.0.0.0:8000 \
    PLIMSOLL_DEVICE__KERNELS=/usr/share/plimsoll/kernels \
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
