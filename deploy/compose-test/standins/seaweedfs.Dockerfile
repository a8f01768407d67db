# In place of chrislusf/seaweedfs:4.48: the same release from its wheel, and an entrypoint that leaves root.
FROM compose-test-rootfs
COPY weed /usr/bin/weed
RUN useradd --uid 1000 --no-create-home seaweed && install -d -o seaweed -g seaweed /data \
    && printf '#!/bin/sh\nchown -R seaweed /data\nexec setpriv --reuid=seaweed --regid=seaweed --clear-groups /usr/bin/weed -logtostderr=true "$@"\n' >/entrypoint.sh \
    && chmod +x /entrypoint.sh
VOLUME /data
ENTRYPOINT ["/entrypoint.sh"]
CMD ["mini", "-dir=/data"]
