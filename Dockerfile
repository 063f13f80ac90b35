# vcsd with CUDA and vLLM, in the tested versions of constraints.txt. This image has not been built yet.
#   docker build -t vcsd . && docker run --rm --gpus all -v $PWD:/work vcsd doctor
# The wheels of torch bring their own CUDA libraries; the image's compiler is for kernels that are built at first use.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS base
ARG DEBIAN_FRONTEND=noninteractive
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home --shell /bin/bash vcsd && install -d -o vcsd -g vcsd /opt/vcsd /work
USER 10001
ENV VIRTUAL_ENV=/opt/vcsd PATH=/opt/vcsd/bin:$PATH PYTHONUNBUFFERED=1
RUN python3 -m venv /opt/vcsd

FROM base AS vcsd
COPY --chown=vcsd:vcsd . /home/vcsd/source
RUN pip install --no-cache-dir --constraint /home/vcsd/source/constraints.txt \
    '/home/vcsd/source[data,eval,peft,vllm]' torch==2.13.0 transformers==5.22.2 vllm==0.30.0
WORKDIR /work
ENTRYPOINT ["vcsd"]
CMD ["--help"]
