# A small image with a broker and the command line, which runs as an unprivileged user. See docs/docker.md.
#
# Dependencies have the versions and hashes of requirements.lock (`make lock`). The base image is taken by its tag, unless you
# give the digest of images.env: docker compose --env-file images.env …, or
# docker build --build-arg "$(grep ^PYTHON_IMAGE= images.env)" ….
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS build
# Compiles two modules of the broker; where Debian's mirrors can't be reached, the image does without.
RUN (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev) || echo "no compiler" >&2
# Extras of pyproject.toml to install as well: those with a lock. The console in the browser needs console,web.
ARG EXTRAS=
COPY requirements*.lock /source/
RUN python3 -m venv --without-pip /opt/ottla \
 && python3 -m pip --disable-pip-version-check --no-cache-dir --python /opt/ottla/bin/python install \
    --require-hashes --no-deps -r /source/requirements.lock \
 && python3 -m pip --disable-pip-version-check --no-cache-dir install \
    --require-hashes --no-deps -r /source/requirements-build.lock \
 && for extra in $(echo "$EXTRAS" | tr , ' '); do case $extra in broker | console | security) continue ;; esac; \
    test -f "/source/requirements-$extra.lock" || { echo "EXTRAS: there is no requirements-$extra.lock" >&2; exit 1; }; \
    python3 -m pip --disable-pip-version-check --no-cache-dir --python /opt/ottla/bin/python install \
    --require-hashes --no-deps -r "/source/requirements-$extra.lock" || exit 1; done
COPY pyproject.toml hatch_build.py README.md LICENSE /source/
COPY broker /source/broker
COPY protocol /source/protocol
COPY client /source/client
COPY pipeline /source/pipeline
RUN python3 -m pip --disable-pip-version-check --no-cache-dir wheel --no-deps --no-build-isolation -w /wheels /source \
 && python3 -m pip --disable-pip-version-check --no-cache-dir --python /opt/ottla/bin/python install \
    --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 1000 ottla && useradd --uid 1000 --gid ottla --no-create-home --home-dir /var/lib/ottla ottla \
 && install -d -o ottla -g ottla /var/lib/ottla /etc/ottla
COPY --from=build /opt/ottla /opt/ottla
ENV PATH=/opt/ottla/bin:$PATH \
    OTTLA_LOG_DIRS=/var/lib/ottla \
    OTTLA_LISTENERS=PLAINTEXT://:9092 \
    OTTLA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
USER ottla
VOLUME /var/lib/ottla
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=10s --start-period=30s CMD ["python", "-m", "ottla_broker.health"]
ENTRYPOINT ["ottla"]
CMD ["broker"]
