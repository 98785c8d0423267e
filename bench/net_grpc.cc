// The gRPC side of `rubato bench net`: requests of 64 bytes, one channel.
//
//   net_grpc serve                            prints its address, ends with its standard input
//   net_grpc echo ADDRESS OUTSTANDING SECONDS prints requests per second, p50 us, p99 us
//
// The generic (byte buffer) interface with completion queues: the fastest way that Debian's gRPC
// offers, without protobuf's encoding.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

namespace
{
using Clock = std::chrono::steady_clock;

grpc::ByteBuffer payload()
{
    static const std::string bytes(64, 'x');
    grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
}

// One request: wait for it, read, answer, and wait for the next.
class Served
{
  public:
    Served(grpc::AsyncGenericService *service, grpc::ServerCompletionQueue *queue)
        : service_(service), queue_(queue), stream_(&context_)
    {
        service_->RequestCall(&context_, &stream_, queue_, queue_, this);
    }
    void proceed(bool ok)
    {
        if (!ok) {
            delete this;
            return;
        }
        switch (state_++) {
        case 0:
            new Served(service_, queue_);
            stream_.Read(&buffer_, this);
            break;
        case 1:
            stream_.WriteAndFinish(buffer_, grpc::WriteOptions(), grpc::Status::OK, this);
            break;
        default:
            delete this;
        }
    }

  private:
    grpc::AsyncGenericService *service_;
    grpc::ServerCompletionQueue *queue_;
    grpc::GenericServerContext context_;
    grpc::GenericServerAsyncReaderWriter stream_;
    grpc::ByteBuffer buffer_;
    int state_ = 0;
};

int serve()
{
    grpc::AsyncGenericService service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service);
    auto queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    if (!server) {
        return 1;
    }
    for (int k = 0; k < 128; k++) {
        new Served(&service, queue.get());
    }
    std::printf("127.0.0.1:%d\n", port);
    std::fflush(stdout);
    std::thread watch([] {
        char byte;
        while (read(0, &byte, 1) > 0) {
        }
        std::_Exit(0);
    });
    void *tag;
    bool ok;
    while (queue->Next(&tag, &ok)) {
        static_cast<Served *>(tag)->proceed(ok);
    }
    watch.join();
    return 0;
}

struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
    Clock::time_point start;
};

void start(grpc::GenericStub *stub, grpc::CompletionQueue *queue, Call *call)
{
    call->context = std::make_unique<grpc::ClientContext>();
    call->start = Clock::now();
    call->reader = stub->PrepareUnaryCall(call->context.get(), "/bench/Echo", payload(), queue);
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
}

int echo(const char *address, int outstanding, double seconds)
{
    auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    std::vector<Call> calls(static_cast<size_t>(outstanding));
    std::vector<double> us;
    us.reserve(1 << 20);
    for (auto &call : calls) {
        start(&stub, &queue, &call);
    }
    auto warm = Clock::now() + std::chrono::milliseconds(300);
    auto end = warm + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(seconds));
    size_t n = 0;
    void *tag;
    bool ok;
    while (queue.Next(&tag, &ok)) {
        auto *call = static_cast<Call *>(tag);
        auto now = Clock::now();
        if (!ok || !call->status.ok()) {
            std::fprintf(stderr, "%s\n", call->status.error_message().c_str());
            return 1;
        }
        if (now >= end) {
            break;
        }
        if (now >= warm) {
            n++;
            us.push_back(std::chrono::duration<double, std::micro>(now - call->start).count());
        }
        call->answer.Clear();
        start(&stub, &queue, call);
    }
    if (us.empty()) {
        return 1;
    }
    std::sort(us.begin(), us.end());
    std::printf("%.1f %.3f %.3f\n", static_cast<double>(n) / seconds, us[us.size() / 2],
                us[us.size() - 1 - us.size() / 100]);
    std::fflush(stdout);
    std::_Exit(0); // calls under way would be waited for
}
} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && std::string(argv[1]) == "serve") {
        return serve();
    }
    if (argc == 5 && std::string(argv[1]) == "echo") {
        return echo(argv[2], std::atoi(argv[3]), std::atof(argv[4]));
    }
    std::fprintf(stderr, "net_grpc serve | echo ADDRESS OUTSTANDING SECONDS\n");
    return 2;
}
