# In place of python:3.11-slim: Debian's Python 3.11 under the same names, and this machine's certificates and wheels.
FROM compose-test-rootfs
ARG PIP_FIND_LINKS=
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_FIND_LINKS=$PIP_FIND_LINKS
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN rm -f /usr/lib/python3*/EXTERNALLY-MANAGED && ln -s python3 /usr/bin/python
