"""Compose files as people write them, and GPU stanzas to put into them."""

from __future__ import annotations

from dshpc_setup.passthrough.handover import GpuStanza, Handover
from dshpc_setup.render.gpu_stanza import gpu_stanza

TRAINING = """\
# PyTorch training, one GPU box in the lab
version: "3.8"

services:
  train:
    image: pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime   # agreed with Ana
    container_name: train
    working_dir: /workspace
    command: ["python", "train.py", "--epochs", "90"]
    shm_size: 16gb
    ipc: host
    ulimits:
      memlock: -1
      stack: 67108864
    environment:
      - WANDB_MODE=offline
      - OMP_NUM_THREADS=8   # one per core
    volumes:
      - ./:/workspace
      - /data/imagenet:/data:ro
"""

JUPYTER = """\
services:
    notebook:
        image: "quay.io/jupyter/pytorch-notebook:latest"
        restart: unless-stopped
        ports:
        - "8888:8888"
        environment:
            JUPYTER_TOKEN: ${JUPYTER_TOKEN:?set it in .env}
            GRANT_SUDO: 'yes'

            # the uid on the file server
            NB_UID: "1001"
        volumes:
        - ./work:/home/jovyan/work
        # - /scratch:/scratch
        deploy:
            resources:
                limits:
                    cpus: "8"
                    memory: 32G


    # the proxy in front of it
    proxy:
        image: caddy:2
        ports: ["443:443"]
        volumes: [./Caddyfile:/etc/caddy/Caddyfile]
"""

OLLAMA = """\
services:
  ollama:
    image: ollama/ollama:${OLLAMA_TAG-latest}
    volumes:
      - ollama:/root/.ollama
    tty: true
    restart: unless-stopped

  open-webui:
    build:
      context: .
      args:
        OLLAMA_BASE_URL: '/ollama'
    depends_on:
      - ollama
    ports:
      - ${OPEN_WEBUI_PORT-3000}:8080
    environment:
      - 'OLLAMA_BASE_URL=http://ollama:11434'
      - 'WEBUI_SECRET_KEY='
    extra_hosts:
      - host.docker.internal:host-gateway

volumes:
  ollama: {}
  open-webui: {}
"""

TRITON = """\
x-logging: &logging
  driver: json-file
  options: {max-size: 10m, max-file: "3"}

x-common: &common
  restart: always
  networks: [inference]
  logging: *logging

services:
  triton:
    <<: *common
    image: nvcr.io/nvidia/tritonserver:24.05-py3
    command: >-
      tritonserver
      --model-repository=/models

    # gRPC and metrics
    ports: ["8000:8000", "8001:8001"]
    volumes:
      - type: bind
        source: ./models
        target: /models
        read_only: true

  client:
    <<: *common
    image: client
    depends_on: {triton: {condition: service_healthy}}
networks:
  inference: {}
"""

KEPT = """\
services:
  job:
    image: alpine
    entrypoint: |+
      #!/bin/sh
      # dshpc gpu begin: only a text in a script
      echo ready

"""

LITTLE = "services:\n  a:\n    image: x"

ODD = """\
---
# nothing is where one would look for it
"services" :


   'gpu-box'  :   # a name in quotes
      # image first
      image :   x
      "environment"  :
         A :  1
         B: "two"   # kept
      devices:
         -   /dev/fuse
         - "/dev/net/tun:/dev/net/tun"
      group_add :
         - staff
         # - video
      # the last word
   zwei:
      image: y
...
""".replace("image :   x", "image :   x   ")

RESERVED = """\
services:
  web:
    image: x
    security_opt:
      - no-new-privileges:true
    deploy:
      replicas: 1
      resources:
        reservations:
          cpus: '0.5'
          devices:
            - driver: tpu
              capabilities: ["tpu"]
  db: {image: postgres}
"""

FILES = {
    "train": (TRAINING, "train"),
    "notebook": (JUPYTER, "notebook"),
    "ollama": (OLLAMA, "ollama"),
    "open-webui": (OLLAMA, "open-webui"),
    "triton": (TRITON, "triton"),
    "kept": (KEPT, "job"),
    "little": (LITTLE, "a"),
    "odd": (ODD, "gpu-box"),
    "reserved": (RESERVED, "web"),
}
"""Name of a case -> the text, and the service that is to get a GPU."""

CDI = Handover("cdi", ids=("nvidia.com/gpu=all",))
REQUEST = Handover("device-request")
SOME = Handover("device-request", ids=("0", "2"))
RUNTIME = Handover("runtime")
AMD = Handover(
    "devices",
    devices=("/dev/kfd:/dev/kfd", "/dev/dri/renderD128:/dev/dri/renderD128"),
    group_add=(44, 110),
)
WSL = Handover(
    "devices",
    devices=("/dev/dxg:/dev/dxg",),
    volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
    environment={"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"},
)
_PROFILED = Handover("devices", devices=("/dev/kfd:/dev/kfd",), group_add=(44,))

STANZAS: dict[str, GpuStanza] = {
    "cdi": gpu_stanza(CDI, None),
    "cdi-2.30": gpu_stanza(CDI, "2.30.3"),
    "request": gpu_stanza(REQUEST, "1.29.2"),
    "gpus": gpu_stanza(REQUEST, "2.30.3"),
    "some": gpu_stanza(SOME, None),
    "some-2.30": gpu_stanza(SOME, "2.30.3"),
    "runtime": gpu_stanza(RUNTIME, None),
    "amd": gpu_stanza(AMD, None),
    "wsl": gpu_stanza(WSL, None),
    "profiling": gpu_stanza(_PROFILED, None, profiling=True),
}
