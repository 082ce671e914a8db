# The app and the command line in a container, on the CPU; docs/where.md says how to run it.
FROM python:3.12-slim
RUN useradd --create-home headroom && mkdir /results && chown headroom /results
COPY . /src
# An index with builds of PyTorch for the CPU alone makes the image smaller by gigabytes.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --no-cache-dir --constraint /src/requirements.txt /src
USER headroom
ENV HEADROOM_CACHE=/results
VOLUME /results
EXPOSE 8501
ENTRYPOINT ["headroom"]
CMD ["--server.address=0.0.0.0", "--server.headless=true"]
