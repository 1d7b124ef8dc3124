# The image of the service, ghcr.io/trellis-run/trellis. docs/operations/deployment.md leads through building and running it.
# Bases are named by tag and digest: the digest of an index of all platforms decides, the tag says what it was.

FROM node:26.10.0-trixie-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1 AS build
WORKDIR /source
COPY package.json package-lock.json .npmrc ./
RUN --mount=type=cache,target=/root/.npm npm ci --ignore-scripts
COPY . .
RUN npm run image -- /image

# glibc, since the programs of the embedded PostgreSQL are linked against it, and a shell, since its initdb calls one:
# neither Alpine nor an image without a system will do.
FROM debian:trixie-20261005-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f
# Node 26 is linked against libatomic and libstdc++. tini is process 1 and takes in what functions leave behind; with bubblewrap each
# function's process gets namespaces of its own where the container may make them.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends libatomic1 libstdc++6 tini bubblewrap \
  && rm -rf /var/lib/apt/lists/* \
  && groupadd --gid 10001 trellis \
  && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin trellis \
  && install --directory --owner trellis --group trellis --mode 0700 /data
COPY --from=build /image/ /
COPY --from=build /usr/local/bin/node /opt/trellis/bin/node

ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Trellis" \
  org.opencontainers.image.description="Self-hosted integration service: OAuth connections, a faithful proxy and a cache of synced records" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"

# Only /data and /tmp are written to; everything else may be read-only. TRELLIS_FUNCTIONS_DIR may name a mounted folder.
ENV NODE_ENV=production \
  HOST=0.0.0.0 \
  PORT=3003 \
  DATA_DIR=/data \
  LOG_FORMAT=json \
  PATH=/opt/trellis/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 3003
STOPSIGNAL SIGTERM
# It listens once the database is migrated, which takes long after some upgrades; a start that fails ends by itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=3600s --retries=3 \
  CMD ["node", "/opt/trellis/bin/healthy.js"]
# Requests in flight get TRELLIS_DRAIN_SECONDS at a stop: give `docker stop` 20 seconds with the default.
ENTRYPOINT ["tini", "--", "trellis"]
CMD ["start"]
