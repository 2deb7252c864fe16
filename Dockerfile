# One image for every role: `warmroute xds`, `warmroute ext-proc`, `warmroute serve`, `warmroute engine`.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/warmroute
COPY pyproject.toml README.md LICENSE ./
COPY fleet fleet
COPY xds_server xds_server
COPY ext_proc ext_proc
COPY warmroute warmroute
RUN /opt/warmroute/bin/pip install --no-cache-dir .

FROM python:3.11-slim-bookworm
# The sockets' directory belongs to the user of the services; a new volume mounted there takes that over.
RUN groupadd --gid 10001 warmroute \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin warmroute \
 && install --directory --owner=10001 --group=10001 --mode=0750 /run/warmroute
COPY --from=build /opt/warmroute /opt/warmroute
ENV PATH=/opt/warmroute/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["warmroute"]
CMD ["--help"]
