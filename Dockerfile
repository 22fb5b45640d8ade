# A small image with a broker and the command line, which runs as an unprivileged user. See docs/docker.md.
FROM python:3.11-slim AS build
# Compiles two modules of the broker; where Debian's mirrors can't be reached, the image does without.
RUN (apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev) || echo "no compiler" >&2
# What of Ottla to install: extras of pyproject.toml. The console in the browser needs web.
ARG EXTRAS=broker,console
COPY pyproject.toml hatch_build.py README.md LICENSE /source/
COPY broker /source/broker
COPY protocol /source/protocol
COPY client /source/client
COPY pipeline /source/pipeline
RUN python3 -m venv --without-pip /opt/ottla \
 && python3 -m pip --disable-pip-version-check --no-cache-dir --python /opt/ottla/bin/python install "/source[$EXTRAS]"

FROM python:3.11-slim
RUN groupadd --gid 1000 ottla && useradd --uid 1000 --gid ottla --no-create-home --home-dir /var/lib/ottla ottla \
 && install -d -o ottla -g ottla /var/lib/ottla
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
