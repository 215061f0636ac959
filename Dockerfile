# docker build -t protrain . && docker run --rm -v "$PWD:/work" protrain train --model /work/MODEL --data /work/DATA --out /work/OUT
# The image computes on CPUs. For GPUs, build in an image with the CUDA toolkit: --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04
ARG BASE=debian:bookworm
FROM ${BASE} AS build
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates sudo dpkg-dev file
COPY . /source
WORKDIR /source
RUN tools/setup
RUN cmake -S . -B /build -DPT_TESTS=OFF && cmake --build /build --parallel && cd /build && cpack

FROM ${BASE}
COPY --from=build /build/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb libmuparser2v5 && rm -rf /var/lib/apt/lists/* /tmp/*.deb
WORKDIR /work
ENTRYPOINT ["protrain"]
