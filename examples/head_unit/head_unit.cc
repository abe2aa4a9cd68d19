// SPDX-License-Identifier: Apache-2.0
//
// A head unit in C++17: one event loop and no threads. It asks in writing, begins to play the answer, and is told to stop: it says how much was
// heard, and asks again.
//
//     head_unit_cc FIRST SECOND [SOCKET]      two questions; the first answer is stopped after half a second of sound
#include <dpf/client.h>
#include <poll.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

struct Closer {
    void operator()(dpf_client *client) const { dpf_client_close(client); }
};

using Client = std::unique_ptr<dpf_client, Closer>;

void must(int status) {
    if (status != DPF_CLIENT_OK) throw std::runtime_error(dpf_client_status_text(status));
}

Client open(const char *socket) {
    dpf_client_options options;
    dpf_client_options_init(&options, sizeof options);
    options.socket = socket;
    options.wait_ms = 10000;
    dpf_client *client = nullptr;
    char why[512];
    if (dpf_client_open(&options, &client, why, sizeof why) != DPF_CLIENT_OK) throw std::runtime_error(why);
    return Client(client);
}

struct Answer {
    std::uint32_t after = 0;  // the number of the answer before this one
    std::string text;
    std::uint64_t samples = 0;
    std::uint32_t number = 0, code = DPF_CLIENT_BROKEN;
    bool done = false, silent = false, stopped = false;
};

void read_events(dpf_client *client, Answer &answer) {
    dpf_client_event event;
    int status;
    while ((status = dpf_client_next_event(client, &event, 0)) == DPF_CLIENT_OK) {
        if (event.kind == DPF_CLIENT_ANSWER_STARTED) answer.number = event.number;
        if (event.kind == DPF_CLIENT_ANSWER_TEXT) answer.text.append(event.text, event.text_bytes);
        if (event.kind == DPF_CLIENT_ERROR) throw std::runtime_error(event.text);
        if (event.kind == DPF_CLIENT_ANSWER_DONE && event.number == answer.number) {
            answer.done = true;
            answer.code = event.code;
        }
        must(dpf_client_event_done(client, &event));
    }
    if (status != DPF_CLIENT_TIMEOUT) must(status);
}

// Plays what is there; after `stop_ms` of it (0: never) the person says stop.
void read_sound(dpf_client *client, Answer &answer, std::uint64_t stop_ms) {
    dpf_client_sound sound;
    int status;
    while ((status = dpf_client_next_sound(client, &sound, 0)) == DPF_CLIENT_OK) {
        bool ours = sound.number > answer.after;  // else the end of the one before, told again
        if (ours) answer.samples += sound.count;  // a real one gives them to its mixer
        if (ours && sound.last) answer.silent = true;
        must(dpf_client_sound_done(client, &sound));
        std::uint64_t ms = answer.samples * 1000 / dpf_client_output_hz(client);
        if (stop_ms != 0 && ms >= stop_ms && !answer.stopped) {
            must(dpf_client_stop(client, static_cast<std::uint32_t>(ms)));
            answer.stopped = true;  // from here on nothing of this answer is returned but its end
        }
    }
    if (status != DPF_CLIENT_TIMEOUT) must(status);
}

Answer ask(dpf_client *client, const std::string &question, std::uint64_t stop_ms, std::uint32_t after) {
    must(dpf_client_say(client, question.data(), question.size(), 1000));
    must(dpf_client_respond(client, 1000));
    Answer answer;
    answer.after = after;
    while (!answer.done || !answer.silent) {
        pollfd ready[2] = {{dpf_client_event_fd(client), POLLIN, 0}, {dpf_client_sound_fd(client), POLLIN, 0}};
        if (poll(ready, 2, 60000) <= 0) throw std::runtime_error("nothing happens");
        read_events(client, answer);
        read_sound(client, answer, stop_ms);
    }
    std::cout << question << " -> " << answer.text << " [" << answer.samples << " samples, " << (answer.stopped ? "stopped" : "whole") << "]\n";
    return answer;
}

}  // namespace

int main(int count, char **words) {
    if (count < 3) {
        std::cerr << "usage: head_unit_cc FIRST SECOND [SOCKET]\n";
        return 2;
    }
    try {
        Client client = open(count > 3 ? words[3] : nullptr);
        Answer first = ask(client.get(), words[1], 500, 0);
        return ask(client.get(), words[2], 0, first.number).code == DPF_CLIENT_COMPLETED ? 0 : 1;
    } catch (const std::exception &error) {
        std::cerr << "head_unit_cc: " << error.what() << '\n';
        return 1;
    }
}
