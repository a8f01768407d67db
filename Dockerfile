# Two images from one file: `api` (light, no torch) and `worker` (with torch and diffusers).
#
#   docker build --target api -t safelight-api .
#   docker build --target worker -t safelight-worker .        add --build-arg TORCH_INDEX_URL=… for another build of torch
#
# --build-arg OTEL=1 adds OpenTelemetry to either; docs/observability.md says what it exports.

FROM python:3.11-slim AS base
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN groupadd --gid 10001 safelight \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin safelight
WORKDIR /opt/safelight

# What the code needs, before the code. The lists come from a stage of their own, so that the layers after it last until a
# list changes, whatever else pyproject.toml is edited for.
FROM base AS requirements
COPY pyproject.toml ./
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
sets = {'base': p['dependencies'], **p['optional-dependencies']}; \
[open(f'{name}.txt', 'w').write('\n'.join(lines)) for name, lines in sets.items()]"

FROM base AS dependencies
RUN python3 -m venv /opt/venv
COPY constraints.txt ./
COPY --from=requirements /opt/safelight/base.txt ./
RUN pip install -c constraints.txt -r base.txt

FROM dependencies AS api-dependencies
ARG OTEL=
COPY --from=requirements /opt/safelight/api.txt /opt/safelight/otel.txt ./
RUN pip install -c constraints.txt -r api.txt ${OTEL:+-r otel.txt}

FROM dependencies AS worker-dependencies
ARG TORCH_INDEX_URL=
ARG OTEL=
COPY --from=requirements /opt/safelight/worker.txt /opt/safelight/otel.txt ./
RUN pip install -c constraints.txt ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} -r worker.txt ${OTEL:+-r otel.txt}

FROM dependencies AS code
COPY pyproject.toml README.md LICENSE ./
COPY tasks tasks
COPY engine engine
COPY worker worker
COPY api_stub api_stub
RUN pip install --no-deps --prefix /install .

FROM base AS api
COPY --from=api-dependencies /opt/venv /opt/venv
COPY --from=code /install /opt/venv
USER 10001:10001
EXPOSE 8000
CMD ["python", "-P", "-m", "api_stub", "--host", "0.0.0.0", "--port", "8000"]

FROM base AS worker
ENV HF_HOME=/cache/huggingface XDG_CACHE_HOME=/cache
RUN install -d -o 10001 -g 10001 /cache
COPY --from=worker-dependencies /opt/venv /opt/venv
COPY --from=code /install /opt/venv
COPY deploy/worker_health.py .
USER 10001:10001
CMD ["python", "-P", "-m", "worker"]
